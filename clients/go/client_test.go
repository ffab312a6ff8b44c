package bloomgate_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bloomgate.invalid/bloomgate"
	"github.com/redis/go-redis/v9"
)

// script is a client of a scripted server.
type script struct {
	t      *testing.T
	server *scriptedServer
	client *bloomgate.Client
}

func startScript(t *testing.T, options redis.Options) *script {
	server := startScripted(t)
	options.Addr, options.ReadTimeout, options.MinRetryBackoff = server.listener.Addr().String(), patience, -1
	return newScript(t, server, redis.NewClient(&options))
}

// startScriptOfCluster makes a client of a cluster whose only node is a scripted server.
func startScriptOfCluster(t *testing.T) *script {
	server := startScripted(t)
	nodes := []redis.ClusterNode{{Addr: server.listener.Addr().String()}}
	return newScript(t, server, redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: nodes}}, nil
		},
		MaxRetries: 3, MaxRedirects: 3, ReadTimeout: patience, MinRetryBackoff: -1,
	}))
}

func newScript(t *testing.T, server *scriptedServer, client redis.UniversalClient) *script {
	one := &script{t, server, bloomgate.New(client)}
	t.Cleanup(func() {
		one.client.Close()
		_ = client.Close()
		// A goroutine that has finished its work needs a moment to end.
		eventually(t, "no goroutine is left after Close", func() bool { return goroutines() == "" })
		if server != nil && server.violations != nil {
			t.Error(server.violations)
		}
	})
	return one
}

// expect waits for the next command, and replies to it.
func (s *script) expect(words string, reply any) {
	s.t.Helper()
	s.answer(s.take(words), reply)
}

// take returns the next command.
func (s *script) take(words string) *arrival {
	s.t.Helper()
	one := s.nextCommand()
	if found := strings.Join(one.words, " "); found != words {
		s.t.Fatalf("`%s` arrived instead of `%s`", found, words)
	}
	return one
}

func (s *script) nextCommand() *arrival {
	s.t.Helper()
	select {
	case one := <-s.server.arrived:
		return one
	case <-time.After(patience):
		s.t.Fatal("no command arrived")
		return nil
	}
}

func (s *script) answer(one *arrival, reply any) {
	if reply == closed {
		_ = one.connection.peer.Close()
		return
	}
	one.connection.answer(one, encode(reply, one.connection.protocol))
}

func (s *script) nothingArrives() {
	s.t.Helper()
	select {
	case one := <-s.server.arrived:
		s.t.Fatalf("%v arrived", one)
	case <-time.After(200 * time.Millisecond):
	}
}

// start runs a call in a goroutine, and returns its error.
func start(work func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	return done
}

// await returns the result of a call.
func await(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Fatal("the call has not ended")
		return nil
	}
}

// loadError is an error of a database.
type loadError string

func (e loadError) Error() string { return string(e) }

func never(context.Context) (*string, error) { panic("a row was loaded") }

const (
	fetch17 = "BF.FETCH users 17 {users}:17"
	peek17  = fetch17 + " STALE 3600000 PEEK"
)

// users returns a guard whose rows are strings, without early renewal.
func (s *script) users(options ...bloomgate.Option) *bloomgate.Guard[string] {
	return bloomgate.NewGuard(s.client, "users", bloomgate.JSON[string](), append(options, bloomgate.Beta(0))...)
}

// A fetch runs in its caller's goroutine, so a call whose context ends returns when the reply has arrived.
func TestScriptedCloseWaitsUntilACancelledCallHasGivenUpItsLease(t *testing.T) {
	s := startScript(t, redis.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	got := start(func() error {
		_, _, err := s.users().Get(ctx, "17", never)
		return err
	})
	fetch := s.take(fetch17)
	cancel()
	s.answer(fetch, list{"load", "token"})
	if err := await(t, got); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	giveUp := s.take("BF.FILL users 17 {users}:17 token GIVEUP")
	closed := start(func() error { s.client.Close(); return nil })
	s.nothingArrives()
	if len(closed) > 0 {
		t.Fatal("Close has not waited")
	}
	s.answer(giveUp, simple("+OK"))
	_ = await(t, closed)
}

// A server that hangs delays a cancelled call for no longer than the time limit.
func TestScriptedCancelledCallEndsWithTheTimeLimit(t *testing.T) {
	server := startScripted(t)
	s := newScript(t, server, redis.NewClient(&redis.Options{Addr: server.listener.Addr().String(), ReadTimeout: 300 * time.Millisecond}))
	ctx, cancel := context.WithCancel(t.Context())
	got := start(func() error {
		_, _, err := s.users().Get(ctx, "17", never)
		return err
	})
	s.take(fetch17)
	cancel()
	if err := await(t, got); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// Callers wait for a connection no longer than for a reply, although they share timers.
func TestScriptedWaitForAConnectionIsLimitedByTheTimeLimit(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{
		Addr: startScripted(t).listener.Addr().String(), ReadTimeout: 100 * time.Millisecond, PoolSize: 1, PoolTimeout: time.Hour,
	})
	s := newScript(t, nil, rdb)
	taken := rdb.Conn()
	defer func() { _ = taken.Close() }()
	if err := taken.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := bloomgate.NewFilter(s.client, "seen").Card(background); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
}

func TestScriptedEveryCallOfACancelledContextReturnsItsError(t *testing.T) {
	s := startScript(t, redis.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	users := s.users()
	_, _, err := users.Get(ctx, "17", never)
	_, many := users.GetMany(ctx, []string{"17"}, nil)
	changed := users.Changed(ctx, []string{"17"}, func(context.Context) error { panic("it was not announced") })
	_, added := bloomgate.NewFilter(s.client, "seen").Add(ctx, "a")
	for _, err := range []error{err, many, changed, added} {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	s.nothingArrives()
}

func TestScriptedFilterCallReturnsAtOnceWhenItsContextEnds(t *testing.T) {
	s := startScript(t, redis.Options{})
	seen := bloomgate.NewFilter(s.client, "seen")
	users := s.users()
	for name, call := range map[string]func(context.Context) error{
		"Add":    func(ctx context.Context) error { _, err := seen.Add(ctx, "a"); return err },
		"Exists": func(ctx context.Context) error { _, err := seen.Exists(ctx, "a"); return err },
		"Reserve": func(ctx context.Context) error {
			_, err := seen.Reserve(ctx, 0.01, 1, bloomgate.FilterOptions{})
			return err
		},
		"Stats":  func(ctx context.Context) error { _, err := seen.Stats(ctx); return err },
		"Forget": func(ctx context.Context) error { return users.Forget(ctx, "a") },
		"PlanFilter": func(ctx context.Context) error {
			_, err := bloomgate.PlanFilter(ctx, s.client, 0.01, 1, 0, bloomgate.FilterOptions{})
			return err
		},
		"FillFilter": func(ctx context.Context) error {
			_, err := bloomgate.FillFilter(ctx, s.client, "users", nil, 0.01, 1, bloomgate.FillOptions{})
			return err
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		called := start(func() error { return call(ctx) })
		one := s.nextCommand()
		cancel()
		if err := await(t, called); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		// The reply to the ended call is not returned by another call.
		other := start(func() error {
			found, err := seen.Count(t.Context(), "b")
			if err == nil && found != 7 {
				err = fmt.Errorf("the count is %d", found)
			}
			return err
		})
		counting := s.nextCommand()
		s.answer(one, simple("+OK"))
		s.answer(counting, 7)
		if err := await(t, other); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
	s.nothingArrives()
}

func TestScriptedLoadThatFailsAfterItsContextHasBothErrors(t *testing.T) {
	s := startScript(t, redis.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	got := start(func() error {
		_, _, err := s.users(bloomgate.FailSafe(time.Hour)).Get(ctx, "17", func(context.Context) (*string, error) {
			cancel()
			return nil, loadError("interrupted")
		})
		return err
	})
	s.expect(fetch17+" STALE 3600000", list{"load", "token"})
	// No back-off: the row's load has not failed.
	s.expect("BF.FILL users 17 {users}:17 token GIVEUP", simple("+OK"))
	if err := await(t, got); !errors.Is(err, context.Canceled) || !errors.Is(err, loadError("interrupted")) {
		t.Fatal(err)
	}
}

// pastDeadline is a context whose deadline has passed, but whose timer has not fired yet.
type pastDeadline struct {
	context.Context
	left time.Duration
}

func (c pastDeadline) Deadline() (time.Time, bool) { return time.Now().Add(c.left), true }

// A driver passes the deadline to its connection, and fails before the context has ended. Other callers have later deadlines.
func TestScriptedDeadlineOfOneCallerIsNotSharedByOthers(t *testing.T) {
	for name, one := range map[string]struct {
		left time.Duration
		err  error
	}{"at the deadline": {0, loadError("i/o timeout")}, "a moment before": {50 * time.Millisecond, os.ErrDeadlineExceeded}} {
		t.Run(name, func(t *testing.T) {
			s := startScript(t, redis.Options{})
			users := s.users(bloomgate.FailSafe(time.Hour))
			fetch, end := fetch17+" STALE 3600000", make(chan error)
			first := start(func() error {
				_, _, err := users.Get(pastDeadline{t.Context(), one.left}, "17", func(context.Context) (*string, error) { return nil, <-end })
				return err
			})
			s.expect(fetch, list{"load", "token"})
			second := start(func() error {
				_, _, err := users.Get(t.Context(), "17", never)
				return err
			})
			s.expect(fetch, list{"wait", 2900})
			s.nothingArrives()
			end <- one.err
			// No back-off: the row's load has not failed.
			s.expect("BF.FILL users 17 {users}:17 token GIVEUP", simple("+OK"))
			if err := await(t, first); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, one.err) {
				t.Error(err)
			}
			s.expect(fetch, list{"absent"})
			if err := await(t, second); err != nil {
				t.Error(err)
			}
		})
	}
}

// Many callers share one load, even if the load ends without returning.
func TestScriptedLoadThatPanicsOrExitsIsSharedAsAnError(t *testing.T) {
	down := loadError("down")
	for name, fatal := range map[string]func(){"panics": func() { panic(down) }, "exits": runtime.Goexit} {
		for _, isMany := range []bool{false, true} {
			t.Run(fmt.Sprint(name, isMany), func(t *testing.T) {
				s := startScript(t, redis.Options{})
				users := s.users(bloomgate.FailSafe(time.Hour))
				fetch := fetch17 + " STALE 3600000"
				end, ended := make(chan struct{}), make(chan any, 1)
				go func() {
					// After Goexit there is no cause, and a call that returns reports another one.
					var cause any = "it has returned"
					defer func() { ended <- cause }()
					defer func() { cause = recover() }()
					if isMany {
						_, _ = users.GetMany(t.Context(), []string{"17"}, func(context.Context, []string) (map[string]string, error) {
							<-end
							fatal()
							return nil, nil
						})
					} else {
						_, _, _ = users.Get(t.Context(), "17", func(context.Context) (*string, error) {
							<-end
							fatal()
							return nil, nil
						})
					}
					panic("it has returned")
				}()
				s.expect(fetch, list{"load", "token"})
				other := start(func() error {
					_, _, err := users.Get(t.Context(), "17", never)
					return err
				})
				s.expect(fetch, list{"wait", 2900})
				s.nothingArrives()
				close(end)
				s.expect("BF.FILL users 17 {users}:17 token GIVEUP BACKOFF", simple("+OK"))
				err := await(t, other)
				var known *bloomgate.Error
				if !errors.Is(err, bloomgate.ErrLoadFailed) || !errors.As(err, &known) || !slices.Equal(known.IDs, []string{"17"}) {
					t.Fatal(err)
				}
				if cause := <-ended; name == "panics" && (cause != any(down) || !errors.Is(err, down)) || name == "exits" && cause != nil {
					t.Fatal(cause, err)
				}
				if users.Counts()["load_failed"] != 1 {
					t.Error(users.Counts())
				}
			})
		}
	}
}

type panicking struct{ bloomgate.Codec[string] }

func (panicking) Decode([]byte) (string, error) { panic("no") }

func TestScriptedPanickingCodecGivesUpItsLease(t *testing.T) {
	s := startScript(t, redis.Options{})
	users := bloomgate.NewGuard(s.client, "users", panicking{bloomgate.JSON[string]()}, bloomgate.Beta(0))
	for _, call := range []func(){
		func() { _, _, _ = users.Get(t.Context(), "17", never) },
		func() { _, _ = users.GetMany(t.Context(), []string{"17"}, nil) },
	} {
		got := start(func() (err error) {
			defer func() { err = fmt.Errorf("%v", recover()) }()
			call()
			return nil
		})
		s.expect(fetch17, list{"stale", "old", "token"})
		s.expect("BF.FILL users 17 {users}:17 token GIVEUP", simple("+OK"))
		if err := await(t, got); err.Error() != "no" {
			t.Fatal(err)
		}
	}
}

func TestScriptedChangeWhoseBodyPanicsIsConfirmed(t *testing.T) {
	s := startScript(t, redis.Options{})
	users := s.users()
	changed := start(func() (err error) {
		defer func() { err = fmt.Errorf("%v", recover()) }()
		return users.Changed(t.Context(), []string{"17"}, func(context.Context) error { panic("body") })
	})
	s.expect("BF.CHANGED users 17 {users}:17", false)
	s.expect("BF.CHANGED users 17 {users}:17", false)
	if err := await(t, changed); err.Error() != "body" {
		t.Fatal(err)
	}
}

func TestScriptedUnconfirmedChangeHasTheErrorOfItsBodyToo(t *testing.T) {
	s := startScript(t, redis.Options{})
	users := s.users(bloomgate.Patience(0))
	changed := start(func() error {
		return users.Changed(t.Context(), []string{"17"}, func(context.Context) error { return loadError("body") })
	})
	s.expect("BF.CHANGED users 17 {users}:17", false)
	s.expect("BF.CHANGED users 17 {users}:17", simple("-MISCONF no"))
	err := await(t, changed)
	if !errors.Is(err, bloomgate.ErrUnconfirmed) || !errors.Is(err, loadError("body")) || !redis.HasErrorPrefix(err, "MISCONF") {
		t.Fatal(err)
	}
}

// oldAndSlow begins a call that gets an old value because its load takes too long. The load waits for its context, or for the
// channel that is returned.
func (s *script) oldAndSlow(ctx context.Context) (value <-chan error, loading chan<- error, ended <-chan error) {
	end, done := make(chan error), make(chan error, 1)
	users := s.users(bloomgate.FailSafe(time.Hour), bloomgate.SoftTimeout(time.Millisecond))
	got := start(func() error {
		row, _, err := users.Get(ctx, "17", func(ctx context.Context) (row *string, err error) {
			defer func() { done <- err }()
			select {
			case err = <-end:
			case <-ctx.Done():
				err = ctx.Err()
			}
			if err != nil && err.Error() == "panic" {
				panic(err)
			}
			return nil, err
		})
		if err == nil && row != "old" {
			err = fmt.Errorf("the row is %q", row)
		}
		return err
	})
	s.expect(fetch17+" STALE 3600000", list{"stale", `"old"`, "token"})
	return got, end, done
}

func TestScriptedLoadInTheBackgroundOutlivesItsCaller(t *testing.T) {
	s := startScript(t, redis.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	got, loading, ended := s.oldAndSlow(ctx)
	s.expect(peek17, list{"hit", `"old"`})
	if err := await(t, got); err != nil {
		t.Fatal(err)
	}
	cancel()
	// A cancelled load would give up its lease.
	s.nothingArrives()
	loading <- nil
	if err := await(t, ended); err != nil {
		t.Fatal(err)
	}
	if one := s.nextCommand(); !slices.Contains(one.words, "NONE") {
		t.Fatal(one)
	} else {
		s.answer(one, simple("+OK"))
	}
}

func TestScriptedCloseCancelsLoadsInTheBackground(t *testing.T) {
	s := startScript(t, redis.Options{})
	got, _, ended := s.oldAndSlow(t.Context())
	s.expect(peek17, list{"hit", `"old"`})
	if err := await(t, got); err != nil {
		t.Fatal(err)
	}
	closed := start(func() error { s.client.Close(); return nil })
	if err := await(t, ended); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	s.expect("BF.FILL users 17 {users}:17 token GIVEUP", simple("+OK"))
	_ = await(t, closed)
}

func TestScriptedCallerThatEndsBeforeItsOldValueCancelsItsLoad(t *testing.T) {
	s := startScript(t, redis.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	got, _, ended := s.oldAndSlow(ctx)
	old := s.take(peek17)
	cancel()
	if err := await(t, got); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := await(t, ended); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	s.expect("BF.FILL users 17 {users}:17 token GIVEUP", simple("+OK"))
	s.answer(old, list{"hit", `"old"`})
}

func TestScriptedPanicOfALoadInTheBackgroundIsAnError(t *testing.T) {
	s := startScript(t, redis.Options{})
	got, loading, _ := s.oldAndSlow(t.Context())
	s.expect(peek17, list{"absent"})
	if err := await(t, got); err == nil || !strings.Contains(err.Error(), `the row is ""`) {
		t.Fatal(err)
	}
	loading <- errors.New("panic")
	s.expect("BF.FILL users 17 {users}:17 token GIVEUP BACKOFF", simple("+OK"))
}

// If 64 loads of a guard run in the background, callers get old values at once, and load only rows without one.
func TestScriptedLoadsInTheBackgroundAreLimited(t *testing.T) {
	s := startScript(t, redis.Options{})
	users := s.users(bloomgate.FailSafe(time.Hour), bloomgate.SoftTimeout(time.Hour))
	end := make(chan struct{})
	get := func(id int, load func(context.Context) (*string, error)) <-chan error {
		return start(func() error {
			_, _, err := users.Get(t.Context(), bloomgate.Int(id), load)
			return err
		})
	}
	fetch := func(id int) string { return fmt.Sprintf("BF.FETCH users %d {users}:%d STALE 3600000", id, id) }
	var slow []<-chan error
	for id := range 64 {
		begun := make(chan struct{})
		slow = append(slow, get(id, func(ctx context.Context) (*string, error) {
			close(begun)
			select {
			case <-end:
			case <-ctx.Done():
			}
			return nil, ctx.Err()
		}))
		s.expect(fetch(id), list{"stale", `"old"`, "token"})
		<-begun
	}
	old := get(64, never)
	s.expect(fetch(64), list{"stale", `"old"`, "token"})
	s.expect(fetch(64)+" PEEK", list{"hit", `"old"`})
	s.expect("BF.FILL users 64 {users}:64 token GIVEUP BACKOFF", simple("+OK"))
	changed := get(65, func(context.Context) (*string, error) { return nil, loadError("down") })
	s.expect(fetch(65), list{"stale", `"old"`, "token"})
	s.expect(fetch(65)+" PEEK", list{"wait", 2900})
	s.expect("BF.FILL users 65 {users}:65 token GIVEUP BACKOFF", nil)
	s.expect(fetch(65)+" PEEK", list{"wait", 1})
	if err, failed := await(t, old), await(t, changed); err != nil || !errors.Is(failed, loadError("down")) {
		t.Error(err, failed)
	}
	close(end)
	for range slow {
		s.answer(s.nextCommand(), simple("+OK"))
	}
	for _, one := range slow {
		if err := await(t, one); err != nil {
			t.Error(err)
		}
	}
}

func TestScriptedAllGuardsOfAClientWaitOnHalfOfItsConnections(t *testing.T) {
	s := startScript(t, redis.Options{PoolSize: 2})
	get := func(id string) <-chan error {
		users := s.users(bloomgate.Wait(20 * time.Second))
		return start(func() error {
			_, _, err := users.Get(t.Context(), id, never)
			return err
		})
	}
	first := get("17")
	s.expect(fetch17, list{"wait", 2900})
	waiting := s.nextCommand()
	if !waiting.waits {
		t.Fatal(waiting)
	}
	second := get("18")
	fetch18 := strings.ReplaceAll(fetch17, "17", "18")
	s.expect(fetch18, list{"wait", 2900})
	s.expect(fetch18, list{"absent"})
	s.answer(waiting, list{"absent"})
	if err := errors.Join(await(t, first), await(t, second)); err != nil {
		t.Fatal(err)
	}
	// The slot is free again.
	third := get("17")
	s.expect(fetch17, list{"wait", 2900})
	if again := s.nextCommand(); !again.waits {
		t.Fatal(again)
	} else {
		s.answer(again, list{"absent"})
	}
	if err := await(t, third); err != nil {
		t.Fatal(err)
	}
}

// If eight fetches are in flight, the next one is sent in a turn.
func TestScriptedCancelledCallOfATurnGivesUpItsLease(t *testing.T) {
	s := startScript(t, redis.Options{PoolSize: 20})
	users := s.users()
	get := func(ctx context.Context, id int) <-chan error {
		return start(func() error {
			_, _, err := users.Get(ctx, bloomgate.Int(id), never)
			return err
		})
	}
	var calls []<-chan error
	var fetches []*arrival
	for id := range 8 {
		calls = append(calls, get(t.Context(), id))
		fetches = append(fetches, s.nextCommand())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := get(ctx, 17)
	fetch := s.take(fetch17)
	cancel()
	if err := await(t, cancelled); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	s.answer(fetch, list{"load", "token"})
	s.expect("BF.FILL users 17 {users}:17 token GIVEUP", simple("+OK"))
	for i, one := range fetches {
		s.answer(one, list{"absent"})
		if err := await(t, calls[i]); err != nil {
			t.Fatal(err)
		}
	}
}

func TestManyCallersShareCommandsAndGetTheirOwnRows(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: emptyServer(t), PoolSize: 64, ReadTimeout: patience})
	defer func() { _ = rdb.Close() }()
	client := bloomgate.New(rdb)
	defer client.Close()
	const rows, callers, each = 300, 64, 100
	ids := func(yield func(string) bool) {
		for id := 0; id < rows && yield(bloomgate.Int(id)); id++ {
		}
	}
	if _, err := bloomgate.FillFilter(t.Context(), client, "users", bloomgate.IDs(ids), 1e-9, rows, bloomgate.FillOptions{}); err != nil {
		t.Fatal(err)
	}
	users := bloomgate.NewGuard(client, "users", bloomgate.JSON[int]())
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			for call := range each {
				id := (caller*each + call*7) % (2 * rows)
				row, found, err := users.Get(t.Context(), bloomgate.Int(id), func(context.Context) (*int, error) { return &id, nil })
				if err != nil || found != (id < rows) || found && row != id {
					t.Errorf("%d: %d, %v, %v", id, row, found, err)
				}
			}
		})
	}
	group.Wait()
	stats := rdb.Info(t.Context(), "commandstats").Val()
	if !regexp.MustCompile(`(?i)cmdstat_bf\.mfetch:calls=\d`).MatchString(stats) {
		t.Errorf("each call has sent a command of its own:\n%s", stats)
	}
}

// A filter that lacks the ids after the error would report their rows absent.
func TestScriptedFilterIsNotRenamedAfterAnErrorOfItsSource(t *testing.T) {
	s := startScript(t, redis.Options{})
	down := loadError("the database is down")
	fill := func(ids iter.Seq2[string, error]) <-chan error {
		return start(func() error {
			_, err := bloomgate.FillFilter(t.Context(), s.client, "users", ids, 0.01, 1000, bloomgate.FillOptions{})
			return err
		})
	}
	// A source that fails in the middle of a command, and one that fails after the last command.
	for _, before := range []int{1, 17 * 500} {
		failed := fill(func(yield func(string, error) bool) {
			for id := range before {
				if !yield(bloomgate.Int(id), nil) {
					return
				}
			}
			yield("", down)
		})
		s.expect("BF.RESERVE {users}~filling 0.01 1000", simple("+OK"))
		for range before / 500 / 16 * 16 {
			s.answer(s.nextCommand(), slices.Repeat(list{true}, 500))
		}
		if err := await(t, failed); !errors.Is(err, down) {
			t.Fatal(err)
		}
	}
	s.nothingArrives()
}

// A demoted primary refuses every command, and a new connection to the same name may reach the new primary.
func TestScriptedConnectionToADemotedPrimaryIsClosed(t *testing.T) {
	for name, s := range map[string]*script{"server": startScript(t, redis.Options{}), "cluster": startScriptOfCluster(t)} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			seen := bloomgate.NewFilter(s.client, "seen")
			long := strings.Repeat("b", 1<<20)
			left := map[*connection]bool{}
			for _, refusal := range []string{"MASTERDOWN no", "LOADING no", "CLUSTERDOWN no", "READONLY no"} {
				for _, items := range [][]string{{"a"}, {"a", long}} {
					if name == "cluster" && refusal == "READONLY no" {
						continue // A cluster client finds the new primary itself.
					}
					added := start(func() error { _, err := seen.AddMany(t.Context(), items); return err })
					var one *arrival
					for range items {
						one = s.nextCommand()
						if left[one.connection] {
							t.Errorf("%v arrived on the connection of the server that had refused", one)
						}
						s.answer(one, simple("-"+refusal))
					}
					left[one.connection] = true
					var ofServer redis.Error
					if err := await(t, added); !errors.As(err, &ofServer) || ofServer.Error() != refusal {
						t.Error(err)
					}
					s.nothingArrives()
				}
			}
		})
	}
}

// Each command has its own time limit, which includes the wait for a connection. In a burst, commands do not exceed it.
func TestABurstOfDifferentRowsIsCached(t *testing.T) {
	// At 10 ms per command, separate commands on 10 connections would take 10 s and 4 s.
	for name, callers := range map[string]int{"of one row each": 10_000, "of two rows each": 4000} {
		t.Run(name, func(t *testing.T) {
			address := farAway(t, emptyServer(t), 10*time.Millisecond)
			rdb := redis.NewClient(&redis.Options{Addr: address, ReadTimeout: 3 * time.Second, PoolSize: 10})
			defer func() { _ = rdb.Close() }()
			client := bloomgate.New(rdb)
			defer client.Close()
			users := bloomgate.NewGuard(client, "users", bloomgate.JSON[string]())
			ids := func(yield func(string) bool) {
				for id := 0; id < callers && yield(bloomgate.Int(id)); id++ {
				}
			}
			filled, err := bloomgate.FillFilter(t.Context(), client, "users", bloomgate.IDs(ids), 0.001, int64(callers), bloomgate.FillOptions{})
			if err != nil || filled == 0 {
				t.Fatal(filled, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var group sync.WaitGroup
			for caller := range callers {
				row := bloomgate.Int(caller)
				group.Go(func() {
					var err error
					if name == "of one row each" {
						_, _, err = users.Get(ctx, row, func(context.Context) (*string, error) { return &row, nil })
					} else {
						_, err = users.GetMany(ctx, []string{row, "no " + row}, func(context.Context, []string) (map[string]string, error) {
							return map[string]string{row: row}, nil
						})
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			if keys := rdb.DBSize(t.Context()).Val(); keys != int64(callers)+1 {
				t.Errorf("%d keys, one of them the filter: %v", keys, users.Counts())
			}
		})
	}
}

func TestScriptedNothingIsSentTwice(t *testing.T) {
	for name, s := range map[string]*script{
		"server": startScript(t, redis.Options{MaxRetries: 3}), "cluster": startScriptOfCluster(t),
	} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			seen := bloomgate.NewFilter(s.client, "seen")
			one := start(func() error { _, err := seen.Add(t.Context(), "a"); return err })
			s.expect("BF.MADD seen a", closed)
			lost := await(t, one)
			// Two commands, of which the first is answered.
			long := strings.Repeat("b", 1<<20)
			many := start(func() error { _, err := seen.AddMany(t.Context(), []string{long, "c"}); return err })
			s.expect("BF.MADD seen "+long, list{true})
			s.expect("BF.MADD seen c", closed)
			err := await(t, many)
			var known *bloomgate.Error
			if !errors.As(err, &known) || !slices.Equal(known.Answers, []bloomgate.Answer{bloomgate.Yes, bloomgate.Unknown}) {
				t.Errorf("%v has the answers of %#v", err, known)
			}
			var ofServer redis.Error
			if lost == nil || errors.As(lost, &ofServer) {
				t.Error(lost)
			}
			s.nothingArrives()
		})
	}
}

func TestScriptedClusterFollowsRedirectionsButNotAfterALostConnection(t *testing.T) {
	s := startScriptOfCluster(t)
	address := s.server.listener.Addr().String()
	seen := bloomgate.NewFilter(s.client, "seen")
	one := start(func() error { _, err := seen.Add(t.Context(), "a"); return err })
	s.expect("BF.MADD seen a", simple("-MOVED 1 "+address))
	s.expect("BF.MADD seen a", list{true})
	if err := await(t, one); err != nil {
		t.Fatal(err)
	}
	two := start(func() error { _, err := seen.Add(t.Context(), "a"); return err })
	s.expect("BF.MADD seen a", simple("-ASK 1 "+address))
	s.expect("asking", simple("+OK"))
	s.expect("BF.MADD seen a", closed)
	if err := await(t, two); err == nil {
		t.Fatal("a lost reply was taken for an answer")
	}
	s.nothingArrives()
}

func TestInvalidOptionsAreRefusedByEveryCall(t *testing.T) {
	server := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = server.Close() }()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer func() { _ = ring.Close() }()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer func() { _ = cluster.Close() }()
	for name, one := range map[string]struct {
		of      redis.UniversalClient
		filter  string
		options []bloomgate.Option
	}{
		"a ring":              {of: ring, filter: "users"},
		"no slot":             {of: server, filter: "users}"},
		"no slot of the feed": {of: server, filter: "users}", options: []bloomgate.Option{bloomgate.Prefix("{u}"), bloomgate.Feed()}},
		"ttl":                 {of: server, filter: "users", options: []bloomgate.Option{bloomgate.TTL(0)}},
		"lease":               {of: server, filter: "users", options: []bloomgate.Option{bloomgate.Lease(-1)}},
		"a long lease":        {of: server, filter: "users", options: []bloomgate.Option{bloomgate.Lease(time.Hour + time.Millisecond)}},
		"a short ttl":         {of: server, filter: "users", options: []bloomgate.Option{bloomgate.TTL(time.Millisecond - 1)}},
		"wait":                {of: server, filter: "users", options: []bloomgate.Option{bloomgate.Wait(-1)}},
		"attempts":            {of: server, filter: "users", options: []bloomgate.Option{bloomgate.Attempts(0)}},
		"beta":                {of: server, filter: "users", options: []bloomgate.Option{bloomgate.Beta(math.NaN())}},
		"fresh":               {of: server, filter: "users", options: []bloomgate.Option{bloomgate.Feed(), bloomgate.Fresh(time.Hour + time.Millisecond)}},
		"fresh without feed":  {of: server, filter: "users", options: []bloomgate.Option{bloomgate.Fresh(5 * time.Second)}},
		"fresh below lease":   {of: server, filter: "users", options: []bloomgate.Option{bloomgate.Feed(), bloomgate.Fresh(2999 * time.Millisecond)}},
		"replicas":            {of: server, filter: "users", options: []bloomgate.Option{bloomgate.Replicas(-1)}},
		"replicas' timeout":   {of: server, filter: "users", options: []bloomgate.Option{bloomgate.AOF(), bloomgate.ReplicasTimeout(0)}},
		"a cluster's WAIT":    {of: cluster, filter: "users", options: []bloomgate.Option{bloomgate.Replicas(1)}},
	} {
		client := bloomgate.New(one.of)
		users := bloomgate.NewGuard(client, one.filter, bloomgate.Bytes(), one.options...)
		_, _, get := users.Get(t.Context(), "17", nil)
		_, many := users.GetMany(t.Context(), nil, nil)
		for _, err := range []error{
			get, many, users.Changed(t.Context(), nil, nil), users.Announce(t.Context()), users.Confirm(t.Context()), users.Forget(t.Context()),
		} {
			if !errors.Is(err, bloomgate.ErrRefused) {
				t.Errorf("%s: %v", name, err)
			}
		}
		client.Close()
	}
	if _, err := bloomgate.NewFilter(bloomgate.New(ring), "seen").Card(t.Context()); !errors.Is(err, bloomgate.ErrRefused) {
		t.Error(err)
	}
}

// The message contains the range, and of several invalid options the same one is reported every time.
func TestARefusedOptionErrorContainsItsRange(t *testing.T) {
	client := bloomgate.New(redis.NewClient(&redis.Options{}))
	for range 20 {
		users := bloomgate.NewGuard(client, "users", bloomgate.Bytes(), bloomgate.Lease(2*time.Hour), bloomgate.TTL(0), bloomgate.Wait(-1))
		if err := users.Announce(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "TTL is from 1 to 1000000000000 ms, not 0 ms") {
			t.Fatal(err)
		}
	}
	users := bloomgate.NewGuard(client, "users", bloomgate.Bytes(), bloomgate.Lease(2*time.Hour))
	if err := users.Announce(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "Lease is from 1 to 3600000 ms, not 7200000 ms") {
		t.Error(err)
	}
	if _, _, err := bloomgate.NewGuard(client, "users", bloomgate.Bytes()).GetWithTTL(t.Context(), "17", time.Microsecond, nil); !errors.Is(err, bloomgate.ErrRefused) {
		t.Error(err)
	}
	options := bloomgate.FillOptions{FilterOptions: bloomgate.FilterOptions{ExistOK: true}}
	if _, err := bloomgate.FillFilter(t.Context(), client, "users", nil, 0.01, 1, options); !errors.Is(err, bloomgate.ErrRefused) {
		t.Error(err)
	}
}

// Observe and Logger are called in goroutines of the package, where a panic ends the program.
func TestScriptedNilObserveAndLoggerAreTheDefaults(t *testing.T) {
	s := startScript(t, redis.Options{})
	users := s.users(bloomgate.Observe(nil), bloomgate.Logger(nil))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := start(func() error {
		_, _, err := users.Get(ctx, "17", func(context.Context) (*string, error) { return nil, nil })
		return err
	})
	s.expect(fetch17, simple("-ERR no"))
	if err := await(t, got); err != nil {
		t.Fatal(err)
	}
}

// The log tells an operator why nothing is cached.
func TestScriptedOlderModuleIsReportedInTheLog(t *testing.T) {
	s := startScript(t, redis.Options{})
	var log strings.Builder
	users := s.users(bloomgate.Logger(slog.New(slog.NewTextHandler(&log, nil))))
	got := start(func() error {
		_, _, err := users.Get(t.Context(), "17", func(context.Context) (*string, error) { return nil, nil })
		return err
	})
	s.expect(fetch17, simple("-ERR syntax error"))
	if err := await(t, got); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "the server's module is older than this client") {
		t.Errorf("the log has only %q", log.String())
	}
	announced := start(func() error { return users.Announce(t.Context(), "17") })
	s.expect("BF.CHANGED users 17 {users}:17", simple("-ERR syntax error"))
	if err := await(t, announced); !errors.Is(err, bloomgate.ErrModuleMissing) || !strings.Contains(err.Error(), "older than this client") {
		t.Error(err)
	}
}

func TestJSONHasNoEscapesAndRefusesWhatItCannotWrite(t *testing.T) {
	encoded, err := bloomgate.JSON[string]().Encode("Zoë & <Ann>")
	if err != nil || string(encoded) != `"Zoë & <Ann>"` {
		t.Errorf("%s, %v", encoded, err)
	}
	if _, err := bloomgate.JSON[float64]().Encode(math.NaN()); err == nil {
		t.Error("NaN has no JSON")
	}
}

func TestTheEventsMatchThePage(t *testing.T) {
	page, err := os.ReadFile("../specification/README.md")
	if err != nil {
		t.Fatal(err)
	}
	client := bloomgate.New(redis.NewClient(&redis.Options{}))
	counts := bloomgate.NewGuard(client, "users", bloomgate.Bytes()).Counts()
	_, rest, _ := strings.Cut(string(page), "A guard counts these events")
	sentence, _, _ := strings.Cut(rest, "\n\n")
	for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(sentence, -1) {
		if _, isCounted := counts[name[1]]; !isCounted && name[1] != "near_hit" {
			t.Errorf("%s is not counted", name[1])
		}
		delete(counts, name[1])
	}
	if len(counts) > 0 {
		t.Errorf("the page does not name %v", counts)
	}
}
