// Command adapter makes the calls of the cases in clients/specification: it reads messages from its standard input and answers on its
// standard output. The README.md there describes them. It exits with an error if goroutines of the package are still running at the end.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"bloomgate.invalid/bloomgate"
	"github.com/redis/go-redis/v9"
)

// abilities are the abilities of this client that cases may need. It has no turns, because there is no event loop.
var abilities = []string{"cancel", "timeout", "pool", "share", "pause", "fatal", "background", "transaction", "resp2", "resp3"}

// patience is longer than the duration of any case.
const patience = 2 * time.Minute

type object = map[string]any

// message is one line of the runner.
type message struct {
	ID int

	Open     *int
	Ports    []int
	Protocol int
	Client   struct {
		Connections int
		TimeoutMS   int64 `json:"timeout_ms"`
	}
	Filter *struct {
		Key    string
		Create *bool
	}
	Guard object

	Start   []*call
	Process int

	Return, Raise *int
	Value         any
	Message       string
	Fatal         bool

	Cancel, Close *int
}

// call is a call of an actor.
type call struct {
	ID     int
	Call   string
	With   object
	ctx    context.Context
	cancel context.CancelFunc
}

// outcome is the result of an actor's function.
type outcome struct {
	value any
	err   error
	fatal bool
}

// loadError is the error that an actor's function returns, or panics with.
type loadError string

func (e loadError) Error() string { return string(e) }

// unknown is a message of the runner that this adapter does not understand.
type unknown string

var state = struct {
	mutex     sync.Mutex
	processes map[int]*process
	calls     map[int]*call
	functions map[int]chan outcome
	last      int
}{processes: map[int]*process{}, calls: map[int]*call{}, functions: map[int]chan outcome{}}

// say writes a message.
func say(line object) {
	encoded, err := json.Marshal(line)
	if err != nil {
		fail("%v", err)
	}
	state.mutex.Lock()
	defer state.mutex.Unlock()
	_, _ = os.Stdout.Write(append(encoded, '\n'))
}

func fail(format string, arguments ...any) {
	_, _ = fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}

func main() {
	// The cases make the client warn.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	say(object{"abilities": abilities})
	decoder := json.NewDecoder(bufio.NewReader(os.Stdin))
	decoder.UseNumber()
	for {
		var next message
		if err := decoder.Decode(&next); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			fail("%v", err)
		}
		take(&next)
	}
	for begun := time.Now(); goroutines() != ""; time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > patience/4 {
			fail("goroutines of the package are left after all clients were closed:\n%s", goroutines())
		}
	}
}

// take executes a message.
func take(next *message) {
	state.mutex.Lock()
	defer state.mutex.Unlock()
	switch {
	case next.Open != nil:
		state.processes[*next.Open] = newProcess(next)
		go say(object{"done": next.ID})
	case next.Close != nil:
		one := state.processes[*next.Close]
		delete(state.processes, *next.Close)
		go func() {
			one.client.Close()
			_ = one.redis.Close()
			say(object{"done": next.ID})
		}()
	case next.Cancel != nil:
		state.calls[*next.Cancel].cancel()
		go say(object{"done": next.ID})
	case next.Return != nil:
		state.functions[*next.Return] <- outcome{value: next.Value}
	case next.Raise != nil:
		state.functions[*next.Raise] <- outcome{err: loadError(next.Message), fatal: next.Fatal}
	default:
		for _, one := range next.Start {
			one.ctx, one.cancel = context.WithCancel(context.Background())
			state.calls[one.ID] = one
			go run(state.processes[next.Process], one)
		}
	}
}

func newProcess(next *message) *process {
	limit := cmp.Or(time.Duration(next.Client.TimeoutMS)*time.Millisecond, patience)
	one := &process{}
	var addresses []string
	for _, port := range next.Ports {
		addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", port))
	}
	if len(addresses) == 1 {
		one.redis = redis.NewClient(&redis.Options{
			Addr: addresses[0], Protocol: next.Protocol, ReadTimeout: limit, PoolSize: cmp.Or(next.Client.Connections, 100),
			// The default retries of go-redis, without delay.
			MaxRetries: 3, MinRetryBackoff: -1,
		})
	} else {
		one.redis = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: addresses, Protocol: next.Protocol, ReadTimeout: limit, MaxRetries: 3,
		})
	}
	one.client = bloomgate.New(one.redis)
	if next.Filter != nil {
		one.filter = bloomgate.NewFilter(one.client, next.Filter.Key)
		if create := next.Filter.Create; create != nil && !*create {
			one.filter = one.filter.WithoutCreating()
		}
	}
	one.guardOf = next.Guard
	return one
}

// run makes a call, and reports its result or its error.
func run(of *process, one *call) {
	end := object{"end": one.ID}
	func() {
		defer func() {
			switch reason := recover().(type) {
			case nil:
			case loadError:
				end["error"], end["message"] = []string{"fatal"}, string(reason)
			case unknown:
				end["error"], end["message"] = []string{"unknown"}, string(reason)
			default:
				panic(reason)
			}
		}()
		result, err := of.perform(one)
		if err == nil {
			end["result"] = plain(result)
			return
		}
		end["error"], end["message"] = namesOf(err), err.Error()
		var known *bloomgate.Error
		if errors.As(err, &known) {
			answers := []any{}
			for _, answer := range known.Answers {
				answers = append(answers, map[bloomgate.Answer]any{bloomgate.Yes: true, bloomgate.No: false}[answer])
			}
			end["answers"], end["ids"] = answers, known.IDs
		}
	}()
	say(end)
}

// function is the function that an actor passes to a call.
func (c *call) function(ctx context.Context, ids []any) (any, error) {
	end := make(chan outcome, 1)
	state.mutex.Lock()
	state.last++
	number := state.last
	state.functions[number] = end
	state.mutex.Unlock()
	say(object{"called": c.ID, "function": number, "ids": ids})
	select {
	case found := <-end:
		if found.fatal {
			panic(found.err)
		}
		return found.value, found.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

var named = map[string]error{
	"FilterMissing": bloomgate.ErrFilterMissing, "FilterExists": bloomgate.ErrFilterExists, "FilterFull": bloomgate.ErrFilterFull,
	"FilterLoading": bloomgate.ErrFilterLoading, "ModuleMissing": bloomgate.ErrModuleMissing, "LoadFailed": bloomgate.ErrLoadFailed,
	"Unconfirmed": bloomgate.ErrUnconfirmed, "TimeoutError": bloomgate.ErrNotDurable, "refused": bloomgate.ErrRefused,
	"cancelled": context.Canceled,
}

// namesOf returns the names of an error in the cases.
func namesOf(err error) []string {
	if _, isLoad := err.(loadError); isLoad { //nolint:errorlint // The error itself must arrive.
		return []string{"load"}
	}
	names := []string{}
	for name, one := range named {
		if errors.Is(err, one) {
			names = append(names, name)
		}
	}
	var ofServer redis.Error
	var ofModule *bloomgate.Error
	if errors.As(err, &ofModule) && ofModule.Kind != nil || len(names) > 0 {
		return names
	}
	if errors.As(err, &ofServer) {
		return []string{"server"}
	}
	return []string{"connection"}
}

// goroutines returns the stacks of the goroutines that run code of the package.
func goroutines() string {
	stacks := make([]byte, 1<<22)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var found []string
	for _, one := range strings.Split(string(stacks), "\n\n") {
		if strings.Contains(one, "bloomgate.invalid/bloomgate.") {
			found = append(found, one)
		}
	}
	return strings.Join(found, "\n\n")
}

func fromHex(digits any) string {
	decoded, err := hex.DecodeString(digits.(string))
	if err != nil {
		panic(unknown(err.Error()))
	}
	return string(decoded)
}
