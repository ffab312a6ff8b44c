// Command bench measures the guard on a server with the module, whose keys that begin with bench or {bench} it replaces:
//
//	go run ./bench --callers 64 --rounds 7 --lookups 64000 redis://localhost:6379
//
// It prints goroutines,hits per second,GETs per second,us of CPU time per hit,per hit without cancellation,per GET for each round: 1000 rows of
// 200 bytes are cached, and each caller looks up one random row after another. With --others it prints instead how many loads 10,000 gets of
// one row cause, how long the gets take while a server does not answer, and how often a failing load is called.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"bloomgate.invalid/bloomgate"
	"github.com/redis/go-redis/v9"
)

const rows = 1000

var (
	callers = flag.Int("callers", 64, "how many goroutines look up")
	rounds  = flag.Int("rounds", 7, "how often hits are measured")
	lookups = flag.Int("lookups", 64_000, "lookups of each round")
	others  = flag.Bool("others", false, "measure one row, a hung server and a failing load")
	ctx     = context.Background()
	row     = []byte(strings.Repeat("x", 200))
)

func main() {
	flag.Parse()
	options, err := redis.ParseURL(flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	options.ReadTimeout, options.PoolSize = 10*time.Second, *callers
	rdb := redis.NewClient(options)
	defer func() { _ = rdb.Close() }()
	client := bloomgate.New(rdb)
	defer client.Close()
	measures := []func(*redis.Client, *bloomgate.Client) error{hits}
	if *others {
		measures = []func(*redis.Client, *bloomgate.Client) error{oneRow, hung, failing}
	}
	for _, measure := range measures {
		if err := measure(rdb, client); err != nil {
			log.Fatal(err)
		}
	}
}

// together runs lookups in all callers, and returns the sorted durations of the lookups, and the total duration.
func together(number int, look func() error) ([]time.Duration, time.Duration, error) {
	times := make([]time.Duration, number)
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var group sync.WaitGroup
	begun := time.Now()
	for range *callers {
		group.Go(func() {
			for at := next.Add(1) - 1; at < int64(number); at = next.Add(1) - 1 {
				before := time.Now()
				if err := look(); err != nil {
					failed.Store(&err)
				}
				times[at] = time.Since(before)
			}
		})
	}
	group.Wait()
	all := time.Since(begun)
	slices.Sort(times)
	if err := failed.Load(); err != nil {
		return times, all, *err
	}
	return times, all, nil
}

// prepare fills the filter with all ids, and returns a guard.
func prepare(rdb *redis.Client, client *bloomgate.Client, options ...bloomgate.Option) (*bloomgate.Guard[[]byte], error) {
	keys := []string{"bench", "{bench}~filling"}
	for id := range rows {
		keys = append(keys, "{bench}:"+bloomgate.Int(id))
	}
	if err := rdb.Unlink(ctx, keys...).Err(); err != nil {
		return nil, err
	}
	ids := func(yield func(string) bool) {
		for id := 0; id < rows && yield(bloomgate.Int(id)); id++ {
		}
	}
	_, err := bloomgate.FillFilter(ctx, client, "bench", bloomgate.IDs(ids), 0.001, rows, bloomgate.FillOptions{})
	return bloomgate.NewGuard(client, "bench", bloomgate.Bytes(), options...), err
}

func hits(rdb *redis.Client, client *bloomgate.Client) error {
	guard, err := prepare(rdb, client, bloomgate.TTL(time.Hour))
	if err != nil {
		return err
	}
	for id := range rows {
		if err := rdb.Set(ctx, "{bench}:"+bloomgate.Int(id), row, 0).Err(); err != nil {
			return err
		}
	}
	never := func(context.Context) (*[]byte, error) { return nil, errors.New("a row was not cached") }
	// The callers' contexts can be cancelled, like the contexts of requests.
	cancellable, cancel := context.WithCancel(ctx)
	defer cancel()
	hit := func(ctx context.Context) func() error {
		return func() error {
			_, _, err := guard.Get(ctx, bloomgate.Int(rand.IntN(rows)), never)
			return err
		}
	}
	looks := []func() error{hit(cancellable), func() error {
		return rdb.Get(cancellable, "{bench}:"+bloomgate.Int(rand.IntN(rows))).Err()
	}, hit(ctx)}
	for range *rounds {
		var perSecond, cpu [3]float64
		for i, look := range looks {
			before := cpuTime()
			_, took, err := together(*lookups, look)
			if err != nil {
				return err
			}
			number := float64(*lookups)
			perSecond[i], cpu[i] = number/took.Seconds(), float64((cpuTime()-before).Nanoseconds())/1000/number
		}
		fmt.Printf("goroutines,%.0f,%.0f,%.1f,%.1f,%.1f\n", perSecond[0], perSecond[1], cpu[0], cpu[2], cpu[1])
	}
	return nil
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // It cannot fail for the calling process.
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func oneRow(rdb *redis.Client, client *bloomgate.Client) error {
	guard, err := prepare(rdb, client)
	if err != nil {
		return err
	}
	var loads atomic.Int64
	_, all, err := together(10_000, func() error {
		_, _, err := guard.Get(ctx, "17", func(context.Context) (*[]byte, error) {
			loads.Add(1)
			time.Sleep(100 * time.Millisecond)
			return &row, nil
		})
		return err
	})
	fmt.Printf("10,000 gets of one row, which takes 100 ms to load: %d loads, %d ms\n", loads.Load(), all.Milliseconds())
	return err
}

// hung measures gets while a server accepts connections and never answers, with a time limit of a second.
func hung(*redis.Client, *bloomgate.Client) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	rdb := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), ReadTimeout: time.Second, PoolSize: *callers})
	defer func() { _ = rdb.Close() }()
	client := bloomgate.New(rdb)
	defer client.Close()
	guard := bloomgate.NewGuard(client, "bench", bloomgate.Bytes())
	times, all, err := together(10_000, func() error {
		_, _, err := guard.Get(ctx, "17", func(context.Context) (*[]byte, error) { return &row, nil })
		return err
	})
	fmt.Printf("10,000 gets beside a hung server: %d ms, median %v, 99.9th percentile %v, longest %v\n",
		all.Milliseconds(), times[len(times)/2], times[len(times)*999/1000], times[len(times)-1])
	return err
}

func failing(rdb *redis.Client, client *bloomgate.Client) error {
	guard, err := prepare(rdb, client, bloomgate.FailSafe(time.Hour))
	if err != nil {
		return err
	}
	var loads atomic.Int64
	down := errors.New("the database is down")
	_, all, err := together(10_000, func() error {
		_, _, err := guard.Get(ctx, "17", func(context.Context) (*[]byte, error) {
			loads.Add(1)
			return nil, down
		})
		if errors.Is(err, down) || errors.Is(err, bloomgate.ErrLoadFailed) {
			return nil
		}
		return fmt.Errorf("not the error of a load: %w", err)
	})
	fmt.Printf("10,000 gets of a row whose load fails: %d loads, %d ms\n", loads.Load(), all.Milliseconds())
	return err
}
