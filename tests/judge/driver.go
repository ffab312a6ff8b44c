// The judge's driver for the Go module. README.md has the protocol.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"bloomgate.invalid/bloomgate"
	"github.com/redis/go-redis/v9"
)

var (
	output         sync.Mutex
	answers, calls sync.Map
	last           atomic.Int64
)

func tell(word string, number int64, value any) {
	line, _ := json.Marshal([]any{word, number, value})
	output.Lock()
	defer output.Unlock()
	_, _ = os.Stdout.Write(append(line, '\n'))
}

func ask(word string, value any) (rows map[string]string, err error) {
	number, answer := last.Add(1), make(chan json.RawMessage, 1)
	answers.Store(number, answer)
	tell(word, number, value)
	if line := <-answer; json.Unmarshal(line, &rows) != nil {
		return nil, errors.New(string(line))
	}
	return rows, nil
}

func load(_ context.Context, ids []string) (map[string]string, error) { return ask("load", ids) }

func call(guard *bloomgate.Guard[string], word string, number int64, ids []string) {
	ctx, cancel := context.WithCancel(context.Background())
	calls.Store(number, cancel)
	defer calls.Delete(number)
	rows, err := map[string]string{}, error(nil)
	if word == "write" {
		err = guard.Changed(ctx, ids, func(context.Context) error {
			_, err := ask("commit", number)
			return err
		})
	} else if len(ids) > 1 {
		rows, err = guard.GetMany(ctx, ids, load)
	} else if row, found, failed := guard.Get(ctx, ids[0], func(ctx context.Context) (*string, error) {
		rows, err := load(ctx, ids)
		if row, found := rows[ids[0]]; found {
			return &row, err
		}
		return nil, err
	}); found {
		rows[ids[0]] = row
	} else {
		err = failed
	}
	if err != nil {
		tell("error", number, err.Error())
	} else {
		tell(word, number, rows)
	}
}

func main() {
	settings := struct {
		Address string
		Cluster bool
		Guard   map[string]float64
	}{}
	if err := json.Unmarshal([]byte(os.Args[1]), &settings); err != nil {
		panic(err)
	}
	seconds := func(name string) time.Duration { return time.Duration(settings.Guard[name] * float64(time.Second)) }
	server := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: []string{settings.Address}, IsClusterMode: settings.Cluster, ReadTimeout: time.Second,
	})
	guard := bloomgate.NewGuard(bloomgate.New(server), "rows", bloomgate.JSON[string](),
		bloomgate.AnnounceTo("{rows}~filling"), bloomgate.TTL(seconds("ttl")), bloomgate.AbsentTTL(seconds("absent_ttl")),
		bloomgate.Lease(seconds("lease")), bloomgate.Wait(seconds("wait")), bloomgate.Patience(seconds("patience")),
		bloomgate.FailSafe(seconds("fail_safe")), bloomgate.SoftTimeout(seconds("soft_timeout")),
		bloomgate.Replicas(int(settings.Guard["replicas"])), bloomgate.Logger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	tell("ready", 0, nil)
	for lines := bufio.NewReader(os.Stdin); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var word string
		var number int64
		var value json.RawMessage
		_ = json.Unmarshal(line, &[]any{&word, &number, &value})
		switch word {
		case "row", "fail":
			answer, _ := answers.LoadAndDelete(number)
			answer.(chan json.RawMessage) <- value
		case "cancel":
			if cancel, found := calls.Load(number); found {
				cancel.(context.CancelFunc)()
			}
		case "read", "write":
			var ids []string
			_ = json.Unmarshal(value, &ids)
			go call(guard, word, number, ids)
		}
	}
}
