// The caches in Go, for scoreboard.py, as contestants.py has those in Python.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"bloomgate.invalid/bloomgate"
	"github.com/go-redis/cache/v9"
	"github.com/redis/go-redis/v9"
)

const ttl = time.Minute

type (
	reader func(id string) (int64, error)
	writer func(id string) error
)

var (
	ctx   = context.Background()
	lines = bufio.NewScanner(os.Stdin)
)

func goRedisCache(rdb *redis.Client) (reader, writer) {
	rows := cache.New(&cache.Options{Redis: rdb})
	return func(id string) (version int64, err error) {
		load := func(*cache.Item) (any, error) { return ask("load", id) }
		err = rows.Once(&cache.Item{Ctx: ctx, Key: id, Value: &version, Do: load, TTL: ttl})
		return version, err
	}, func(id string) error { ask("commit", id); return rows.Delete(ctx, id) }
}

func guard(rdb *redis.Client) (reader, writer) {
	rows := bloomgate.NewGuard(bloomgate.New(rdb), "rows", bloomgate.JSON[int64](), bloomgate.TTL(ttl))
	return func(id string) (int64, error) {
			load := func(context.Context) (*int64, error) { version, err := ask("load", id); return &version, err }
			version, _, err := rows.Get(ctx, id, load)
			return version, err
		}, func(id string) error {
			return rows.Changed(ctx, []string{id}, func(context.Context) error { _, err := ask("commit", id); return err })
		}
}

func ask(word, id string) (int64, error) {
	fmt.Println(word, id)
	lines.Scan()
	return strconv.ParseInt(lines.Text(), 10, 64)
}

func main() {
	caches := map[string]func(*redis.Client) (reader, writer){"bloomgate " + os.Getenv("BLOOMGATE_VERSION"): guard}
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/go-redis/cache/v9" {
			caches["go-redis/cache "+module.Version[1:]+", Once"] = goRedisCache
		}
	}
	if len(os.Args) == 1 {
		for name := range caches {
			fmt.Println(name)
		}
		return
	}
	options, err := redis.ParseURL(os.Args[2])
	if err != nil {
		panic(err)
	}
	read, change := caches[os.Args[1]](redis.NewClient(options))
	for lines.Scan() {
		var word, id string
		var version int64
		fmt.Sscan(lines.Text(), &word, &id)
		if word == "read" {
			version, err = read(id)
		} else {
			err = change(id)
		}
		if err != nil {
			panic(err)
		}
		fmt.Println("done", version)
	}
}
