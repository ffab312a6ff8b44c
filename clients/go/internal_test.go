package bloomgate

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A caller that began after the answer was asked for may know of a change that the answer does not have.
func TestAnAnswerThatIsHandedOnStaysAsOldAsItWas(t *testing.T) {
	var all flights
	first, second := all.begin("row"), all.begin("row")
	first.ask()
	third := all.begin("row")
	second.ask()
	if second.beginWait() == nil || third.beginWait() == nil {
		t.Fatal("another one is active")
	}
	first.shares = fetched{word: "absent"}.shared()
	first.end()
	second.shares = second.endWait()
	if second.shares.found == nil {
		t.Fatal("the first answer was not shared")
	}
	second.end()
	if third.endWait().found != nil {
		t.Fatal("the answer is older than the third caller")
	}
	third.end()
	if len(all.rows) > 0 {
		t.Fatal("the row is still there")
	}
}

// The caller that began first goes on first, also if it began to wait later.
func TestTheOneThatHasWaitedLongestGoesOn(t *testing.T) {
	var all flights
	loads, early, late := all.begin("row"), all.begin("row"), all.begin("row")
	second, first := late.beginWait(), early.beginWait()
	loads.end()
	select {
	case <-first:
	case <-second:
		t.Fatal("the one that began later goes on")
	default:
		t.Fatal("nobody goes on")
	}
	// It was cancelled before it noticed.
	early.end()
	select {
	case <-second:
	default:
		t.Fatal("nobody goes on")
	}
	late.end()
}

func someCommands(t *testing.T, options ...Option) *commands {
	client := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = client.Close() })
	g, err := newCommands(New(client), "users", options)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// A value is renewed with the probability exp(-left / (beta * load)): within six standard deviations of it.
func TestRenewalsAreDrawnAsTheyShould(t *testing.T) {
	const draws = 20_000
	for _, beta := range []float64{0.5, 1, 2} {
		g := someCommands(t, Beta(beta), FailSafe(time.Minute))
		g.loadTime = time.Second
		for _, leftMS := range []float64{100, 1000, 3000} {
			renewed := 0
			for range draws {
				if float64(g.staleMS()-60_000) >= leftMS {
					renewed++
				}
			}
			expected := math.Exp(-leftMS / (1000 * beta))
			deviation := math.Sqrt(expected * (1 - expected) / draws)
			// Times are whole milliseconds.
			if found := float64(renewed) / draws; math.Abs(found-expected) > 6*deviation+0.002 {
				t.Errorf("beta %v, %v ms left: %v instead of %v", beta, leftMS, found, expected)
			}
		}
	}
	if g := someCommands(t, Beta(1e10)); g.staleMS() != 0 {
		t.Error("nothing was loaded yet")
	} else if g.loadTime = math.MaxInt64; g.staleMS() != anyAgeMS {
		t.Error("a longer STALE than the server accepts")
	}
}

func TestSlowRowsAreFetchedInGroupsOfSimilarAge(t *testing.T) {
	g := someCommands(t)
	g.loadTime = time.Second
	seen := map[int]bool{}
	groups := g.staleGroups(500, nil)
	for _, group := range groups {
		for _, place := range group.places {
			seen[place] = true
		}
	}
	if len(seen) != 500 || len(groups) < 3 || len(groups) > 20 {
		t.Errorf("%d rows in %d groups", len(seen), len(groups))
	}
	g.loadTime = time.Millisecond
	if groups := g.staleGroups(500, nil); len(groups) != 1 {
		t.Errorf("fast loads are in %d groups", len(groups))
	}
}

func TestBackOffsDoubleAndTheOldestRowIsForgotten(t *testing.T) {
	g := someCommands(t)
	var last int64
	for range 100 {
		last = g.nextBackOffMS("row")
	}
	if last != mostBackOffMS {
		t.Errorf("the back-off is %d ms", last)
	}
	for number := range mostFailing {
		g.nextBackOffMS(Int(number))
	}
	if _, isThere := g.failing["row"]; isThere || len(g.failing) != mostFailing {
		t.Error("the row that has not failed for the longest time is still there")
	}
}

func TestTroubleIsLoggedOnceAMinute(t *testing.T) {
	g := someCommands(t)
	g.warn("one", errPaused)
	first := g.warned["one"]
	g.warn("one", errPaused)
	if g.warned["one"] != first {
		t.Error("it was logged twice")
	}
	g.warned["one"] = first.Add(-warnEvery)
	g.warn("one", errPaused)
	if g.warned["one"].Before(first) {
		t.Error("it was not logged after a minute")
	}
}

// What waits in the server may take longer, on a cluster's node, too; other commands may not.
func TestOnlyWhatWaitsMayTakeLonger(t *testing.T) {
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
