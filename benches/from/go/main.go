// Measures the three filters of rueidisprob, which send scripts, and rueidis with BF.* commands, at 1%: the server's time for an item,
// and the memory. The counting and the sliding filters are full at the end. scripts/bench-from runs it, with the server's port as the
// argument.
package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidisprob"
)

const (
	batches = 100_000
	single  = 10_000
	batch   = 100
	absent  = 1_000_000_000
	full    = batches + single
)

var (
	client rueidis.Client
	ctx    = context.Background()
)

// filter is what the filters of rueidisprob have in common.
type filter interface {
	Add(ctx context.Context, key string) error
	AddMulti(ctx context.Context, keys []string) error
	Exists(ctx context.Context, key string) (bool, error)
	ExistsMulti(ctx context.Context, keys []string) ([]bool, error)
}

// commands is a filter of the module.
type commands string

func (key commands) Add(ctx context.Context, item string) error {
	return client.Do(ctx, client.B().BfAdd().Key(string(key)).Item(item).Build()).Error()
}

func (key commands) AddMulti(ctx context.Context, items []string) error {
	return client.Do(ctx, client.B().BfMadd().Key(string(key)).Item(items...).Build()).Error()
}

func (key commands) Exists(ctx context.Context, item string) (bool, error) {
	return client.Do(ctx, client.B().BfExists().Key(string(key)).Item(item).Build()).AsBool()
}

func (key commands) ExistsMulti(ctx context.Context, items []string) ([]bool, error) {
	return client.Do(ctx, client.B().BfMexists().Key(string(key)).Item(items...).Build()).AsBoolSlice()
}

func main() {
	var err error
	client, err = rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:" + os.Args[1]}, DisableCache: true})
	must(err)
	defer client.Close()

	plain, err := rueidisprob.NewBloomFilter(client, "plain", 1_000_000, 0.01)
	must(err)
	measure("NewBloomFilter", plain, 1_000_000)
	measure("BF.RESERVE", reserve(1_000_000), 1_000_000)

	counting, err := rueidisprob.NewCountingBloomFilter(client, "counting", full, 0.01)
	must(err)
	measure("NewCountingBloomFilter", counting, full)
	measure("BF.RESERVE COUNTING", reserve(full, "COUNTING"), full)

	sliding, err := rueidisprob.NewSlidingBloomFilter(client, "sliding", full, 0.01, time.Hour)
	must(err)
	measure("NewSlidingBloomFilter", sliding, full)
	measure("BF.RESERVE WINDOW SLIDING", reserve(full, "WINDOW", "3600", "SLIDING"), full)
}

func reserve(capacity int, options ...string) filter {
	words := append([]string{"0.01", strconv.Itoa(capacity)}, options...)
	must(client.Do(ctx, client.B().Arbitrary("BF.RESERVE").Keys("commands").Args(words...).Build()).Error())
	return commands("commands")
}

// measure adds items and looks others up, prints the figures, and empties the server.
func measure(name string, filter filter, capacity int) {
	batchAdds := perItem(batches, func() {
		for i := 0; i < batches; i += batch {
			must(filter.AddMulti(ctx, oneBatch(i)))
		}
	})
	adds := singles(batches, func(item string) error { return filter.Add(ctx, item) })
	lookups := singles(absent, func(item string) error { _, err := filter.Exists(ctx, item); return err })
	batchLookups := perItem(batches, func() {
		for i := absent; i < absent+batches; i += batch {
			_, err := filter.ExistsMulti(ctx, oneBatch(i))
			must(err)
		}
	})
	fmt.Printf("%s\t%g\t%g\t%g\t%g\t%g\n", name, adds, batchAdds, lookups, batchLookups, float64(memory())/float64(capacity))
	must(client.Do(ctx, client.B().Flushall().Build()).Error())
}

// singles sends a command for each item. Many commands are on their way at once, so that the server does not wait for the client and
// lose what its caches hold.
func singles(begin int, command func(item string) error) float64 {
	return perItem(single, func() {
		for i := begin; i < begin+single; i += batch {
			var replies sync.WaitGroup
			for _, item := range oneBatch(i) {
				replies.Go(func() { must(command(item)) })
			}
			replies.Wait()
		}
	})
}

// perItem returns the microseconds that the server spends on each of the items.
func perItem(items int, work func()) float64 {
	before := serverTime()
	work()
	return (serverTime() - before) / float64(items)
}

var commandTime = regexp.MustCompile(`(?i)cmdstat_(?:eval|bf\.|hmget).*,usec=(\d+),`)

// serverTime returns the microseconds that the server has spent in scripts, in BF.* commands, and in HMGET, with which the counting
// filter looks items up. The time of a script includes the commands that it calls, which the server also counts by themselves.
func serverTime() float64 {
	statistics, err := client.Do(ctx, client.B().Info().Section("commandstats").Build()).ToString()
	must(err)
	sum := 0.0
	for _, line := range commandTime.FindAllStringSubmatch(statistics, -1) {
		usec, err := strconv.ParseFloat(line[1], 64)
		must(err)
		sum += usec
	}
	return sum
}

// memory returns the bytes of all keys of the server.
func memory() int64 {
	keys, err := client.Do(ctx, client.B().Keys().Pattern("*").Build()).AsStrSlice()
	must(err)
	sum := int64(0)
	for _, key := range keys {
		bytes, err := client.Do(ctx, client.B().MemoryUsage().Key(key).Samples(0).Build()).AsInt64()
		must(err)
		sum += bytes
	}
	return sum
}

func item(i int) string {
	return fmt.Sprintf("https://www.example.org/archive/of-the-news/2024/articles/%012d", i)
}

func oneBatch(begin int) []string {
	items := make([]string, batch)
	for i := range items {
		items[i] = item(begin + i)
	}
	return items
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
