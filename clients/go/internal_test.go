package bloomgate

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A caller that began after the fetch was sent may be aware of a change that the answer does not include.
func TestASharedAnswerKeepsItsAge(t *testing.T) {
	all := newFlights(&atomic.Uint64{})
	first, second := all.begin("row", 1), all.begin("row", 2)
	first.asked = 3
	third := all.begin("row", 4)
	second.asked = 5
	resumed := make(chan struct{}, 1)
	if !second.wait(resumed) || !third.wait(resumed) {
		t.Fatal("another flight is active")
	}
	first.share(answer{word: "absent"}.shared())
	first.end()
	_, given := second.stop(true)
	second.share(given)
	if second.shares.answer == nil {
		t.Fatal("the first answer was not shared")
	}
	second.end()
	if _, given := third.stop(true); given.answer != nil {
		t.Fatal("the answer is older than the third caller")
	}
	third.end()
	if len(all.rows) > 0 {
		t.Fatal("the row is still there")
	}
}

// The caller that began first resumes first, even if it started waiting later.
func TestTheLongestWaitingCallerResumesFirst(t *testing.T) {
	all := newFlights(&atomic.Uint64{})
	loads, early, late := all.begin("row", 1), all.begin("row", 2), all.begin("row", 3)
	first, second := make(chan struct{}, 1), make(chan struct{}, 1)
	if !late.wait(second) || !early.wait(first) {
		t.Fatal("another flight is active")
	}
	loads.end()
	select {
	case <-first:
	case <-second:
		t.Fatal("the caller that began later resumes")
	default:
		t.Fatal("no caller resumes")
	}
	// Its caller was cancelled before it noticed.
	early.end()
	select {
	case <-second:
	default:
		t.Fatal("no caller resumes")
	}
	late.end()
}

// crowd is many callers of a guard whose server is unreachable.
type crowd struct {
	guard *Guard[int64]
	// version is the row in the database.
	version                 atomic.Int64
	loads, running, highest atomic.Int64
	group                   sync.WaitGroup
}

func startCrowd(t *testing.T, address string) *crowd {
	server := redis.NewClient(&redis.Options{Addr: address, ReadTimeout: 200 * time.Millisecond, DialerRetries: 1})
	client := New(server)
	c := &crowd{guard: NewGuard(client, "users", JSON[int64]())}
	t.Cleanup(func() {
		c.group.Wait()
		if len(c.guard.loads.rows) > 0 || len(c.guard.flights.rows) > 0 {
			t.Error("flights are left")
		}
		client.Close()
		_ = server.Close()
	})
	return c
}

// load returns the version of the row at the beginning of the load.
func (c *crowd) load(context.Context) (*int64, error) {
	row := c.version.Load()
	c.loads.Add(1)
	running := c.running.Add(1)
	defer c.running.Add(-1)
	for highest := c.highest.Load(); running > highest && !c.highest.CompareAndSwap(highest, running); highest = c.highest.Load() {
	}
	time.Sleep(time.Millisecond)
	return &row, nil
}

func (c *crowd) loadMany(ctx context.Context, ids []string) (map[string]int64, error) {
	row, err := c.load(ctx)
	rows := map[string]int64{}
	for _, id := range ids {
		rows[id] = *row
	}
	return rows, err
}

// get starts callers of one or several rows. A caller must not get a version older than the current one.
func (c *crowd) get(t *testing.T, callers int, ids ...string) {
	least := c.version.Add(1)
	for range callers {
		c.group.Go(func() {
			rows := map[string]int64{}
			var err error
			if len(ids) == 1 {
				rows[ids[0]], _, err = c.guard.Get(t.Context(), ids[0], c.load)
			} else {
				rows, err = c.guard.GetMany(t.Context(), ids, c.loadMany)
			}
			for _, id := range ids {
				if row, isThere := rows[id]; err != nil || !isThere || row < least {
					t.Errorf("row %s is %d, older than %d: %v", id, row, least, err)
				}
			}
		})
	}
}

// While a server accepts connections and never answers, one load of a row runs at a time, and each caller gets a row that is not older than
// its call.
func TestACrowdWithAHungServerLoadsOneAtATime(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	c := startCrowd(t, listener.Addr().String())
	c.get(t, 500, "row")
	c.get(t, 500, "row", "other")
	c.group.Wait()
	// The other row may be loaded at the same time.
	if c.highest.Load() > 2 {
		t.Errorf("%d of %d loads at a time", c.highest.Load(), c.loads.Load())
	}
}

// Two loads that need each other's rows do not deadlock.
func TestLoadsWithoutAServerThatNeedEachOthersRows(t *testing.T) {
	c := startCrowd(t, "127.0.0.1:1")
	c.guard.options.wait = 50 * time.Millisecond
	var both sync.WaitGroup
	both.Add(2)
	for id, other := range map[string]string{"a": "b", "b": "a"} {
		c.group.Go(func() {
			_, _, err := c.guard.Get(t.Context(), id, func(ctx context.Context) (*int64, error) {
				both.Done()
				both.Wait()
				row, _, err := c.guard.Get(ctx, other, c.load)
				return &row, err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	c.group.Wait()
}

func TestALoadThatReadsItsOwnRowAmongOthers(t *testing.T) {
	c := startCrowd(t, "127.0.0.1:1")
	_, _, err := c.guard.Get(t.Context(), "a", func(ctx context.Context) (*int64, error) {
		rows, err := c.guard.GetMany(ctx, []string{"a", "b"}, c.loadMany)
		if len(rows) != 2 {
			t.Error(rows)
		}
		return new(int64), err
	})
	if err != nil || c.loads.Load() != 1 {
		t.Errorf("%d loads: %v", c.loads.Load(), err)
	}
}

func TestAProblemIsLoggedOnceAMinute(t *testing.T) {
	g := newCommands(New(nil), "users", nil)
	g.warn("one", errPaused)
	first := g.warned["one"]
	g.warn("one", errPaused)
	if g.warned["one"] != first {
		t.Error("it was logged twice")
	}
	g.warned["one"] = first.Add(-warnInterval)
	g.warn("one", errPaused)
	if g.warned["one"].Before(first) {
		t.Error("it was not logged after a minute")
	}
}

// Commands that wait in the server may take longer, even on a cluster node; other commands may not.
func TestOnlyWaitingCommandsMayTakeLonger(t *testing.T) {
	server := redis.NewClient(&redis.Options{ReadTimeout: time.Second})
	defer func() { _ = server.Close() }()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}}}, nil
		},
		ReadTimeout: time.Second,
	})
	defer func() { _ = cluster.Close() }()
	for _, of := range []redis.UniversalClient{server, cluster} {
		client := New(of)
		usual, err := client.sender(t.Context(), "users", 0)
		if usual != sender(of) || err != nil {
			t.Error(usual, err)
		}
		waiting, err := client.sender(t.Context(), "users", 3*time.Second)
		if node, isNode := waiting.(*redis.Client); err != nil || !isNode || node.Options().ReadTimeout != 4*time.Second {
			t.Error(waiting, err)
		}
	}
	if server.Options().ReadTimeout != time.Second {
		t.Error("the time limit of the client itself has changed")
	}
}

func TestRepliesOfEveryType(t *testing.T) {
	text := "*10\r\n+a\r\n:-5\r\n$2\r\nb\n\r\n$-1\r\n_\r\n#t\r\n,0.5\r\n=5\r\ntxt:c\r\n%1\r\n+d\r\n*-1\r\n-OOM no\r\n"
	value, rest, err := parseReply([]byte(text))
	list, _ := value.([]any)
	if err != nil || len(rest) > 0 || len(list) != 10 {
		t.Fatal(value, string(rest), err)
	}
	for i, expected := range []any{"a", int64(-5), "b\n", nil, nil, true, 0.5, "c", nil, serverError("OOM no")} {
		if i != 8 && list[i] != expected {
			t.Errorf("%v instead of %v", list[i], expected)
		}
	}
	if pair, _ := list[8].([]any); len(pair) != 2 || pair[0] != "d" || pair[1] != nil {
		t.Error(list[8])
	}
	for end := range len(text) {
		if _, _, err := parseReply([]byte(text[:end])); err == nil {
			t.Errorf("%q was taken for a reply", text[:end])
		}
	}
	for _, other := range []string{"?1\r\n", "*x\r\n", ":x\r\n", "$9\r\nab\r\n"} {
		if _, _, err := parseReply([]byte(other)); err == nil {
			t.Errorf("%q was taken for a reply", strings.TrimSpace(other))
		}
	}
}
