package bloomgate_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"bloomgate.invalid/bloomgate"
	"github.com/redis/go-redis/v9"
)

// The cases of clients/specification, whose README.md has their format, run on a scripted server, a real one and a cluster.

type (
	object = map[string]any
	list   = []any
)

// abilities are the needs of cases that this client has. It has no turns: there is no event loop.
var abilities = []string{"cancel", "timeout", "pool", "share", "pause", "fatal", "resp2", "resp3"}

// members are the members that the parts of a case may have.
var members = map[string][]string{
	"file": {"about", "cases"},
	"case": {"name", "servers", "needs", "client", "filter", "guard", "sharded", "setup", "steps"},

	"call":           {"call", "with", "process", "result", "error", "message", "answers", "ids"},
	"start":          {"start", "call", "with", "process"},
	"start_together": {"start_together"},
	"expect":         {"expect", "reply", "hold", "on", "not_on"},
	"expect_all":     {"expect_all"},
	"answer":         {"answer", "reply"},
	"called":         {"called", "ids"},
	"return":         {"return", "value"},
	"raise":          {"raise", "message", "fatal"},
	"cancel":         {"cancel"},
	"end":            {"end", "result", "error", "message", "answers", "ids"},
	"quiet":          {"quiet"},
	"pause":          {"pause"},
}

// stepNames are the names of steps; one that others have as a further member comes after them.
var stepNames = []string{
	"start", "start_together", "expect", "expect_all", "answer", "called", "return", "raise", "cancel", "end", "quiet", "pause", "call",
}

// unknown is what a case has that this runner does not understand.
type unknown string

func check(what string, found object) {
	for name := range found {
		if !slices.Contains(members[what], name) {
			panic(unknown(fmt.Sprintf("%s: unknown member %s", what, name)))
		}
	}
}

func readCases(t testing.TB) []object {
	paths, err := filepath.Glob("../specification/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatal("there are no cases")
	}
	var cases []object
	for _, path := range paths {
		if filepath.Base(path) == "options.json" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file := parse(t, text).(object)
		check("file", file)
		for _, one := range file["cases"].(list) {
			check("case", one.(object))
			cases = append(cases, one.(object))
		}
	}
	return cases
}

func parse(t testing.TB, text []byte) (value any) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// missing returns why a case cannot run here: its needs, or the parts of the specification that this client does not have.
func missing(one object) string {
	for _, need := range listOf(one["needs"]) {
		if !slices.Contains(abilities, need.(string)) {
			return "no " + need.(string)
		}
	}
	for _, step := range one["steps"].(list) {
		call, _ := step.(object)["call"].(string)
		if strings.HasPrefix(call, "shard") {
			return "no sharded filters"
		}
		if call == "filter.dump" || call == "filter.load" {
			return "no dump files"
		}
	}
	return ""
}

func listOf(value any) list {
	found, _ := value.(list)
	return found
}

func textOf(value any, usual string) string {
	if text, isText := value.(string); isText {
		return text
	}
	return usual
}

func TestSpecification(t *testing.T) {
	for _, server := range []string{"scripted", "real", "cluster"} {
		t.Run(server, func(t *testing.T) {
			for _, one := range readCases(t) {
				if slices.Contains(one["servers"].(list), any(server)) {
					runCase(t, one, server)
				}
			}
		})
	}
}

func runCase(t *testing.T, one object, server string) {
	needs := one["needs"]
	for _, protocol := range []int{2, 3} {
		other := "resp" + strconv.Itoa(5-protocol)
		// A real server, a cluster, and a scripted one that keeps a client waiting, are asked in one protocol each.
		isOnce := server == "cluster" && protocol == 3 || (server == "real" || one["client"] != nil) && protocol == 2
		if slices.Contains(listOf(needs), any(other)) || isOnce {
			continue
		}
		t.Run(fmt.Sprintf("%s/resp%d", one["name"], protocol), func(t *testing.T) {
			if why := missing(one); why != "" {
				t.Skip(why)
			}
			// A time limit of a second needs a machine that is not busy with all other cases.
			if server == "scripted" && one["client"] == nil {
				t.Parallel()
			}
			r := &run{t: t, of: one, protocol: protocol, calls: map[string]*call{}, held: map[string]*arrival{}}
			r.connections, r.processes = map[string]*connection{}, map[string]*process{}
			switch server {
			case "scripted":
				r.server = startScripted(t)
				r.addresses = []string{r.server.listener.Addr().String()}
			case "real":
				r.addresses = []string{emptyServer(t)}
			case "cluster":
				r.addresses = emptyCluster(t)
			}
			r.run()
		})
	}
}

// process is what one process of a case has.
type process struct {
	redis  redis.UniversalClient
	client *bloomgate.Client
	filter *bloomgate.Filter
	guard  *bloomgate.Guard[any]
	isJSON bool
}

// call is a call of one actor.
type call struct {
	name      string
	arguments object
	ctx       context.Context
	cancel    context.CancelFunc
	// called gets an invocation whenever the client calls the actor's function.
	called  chan *invocation
	pending *invocation
	ended   chan struct{}
	result  any
	err     error
	// panicked is what the call has panicked with: a fatal error of the case, or what the runner does not know.
	panicked any
}

type invocation struct {
	ids     []string
	outcome chan outcome
}

type outcome struct {
	value any
	err   error
	fatal bool
}

// loadError is what a function of an actor returns if the case says so.
type loadError string

func (e loadError) Error() string { return string(e) }

// run is one run of one case, on a scripted server, or without one on a real server or a cluster.
type run struct {
	t           *testing.T
	of          object
	protocol    int
	addresses   []string
	server      *scriptedServer
	mutex       sync.Mutex
	processes   map[string]*process
	calls       map[string]*call
	running     []string
	held        map[string]*arrival
	connections map[string]*connection
	// at is the number of the step.
	at int
}

func (r *run) fail(format string, arguments ...any) {
	r.t.Helper()
	r.t.Fatalf("step %d: %s", r.at, fmt.Sprintf(format, arguments...))
}

func (r *run) run() {
	defer r.close()
	for _, words := range listOf(r.of["setup"]) {
		if r.server != nil {
			break
		}
		if err := r.process("setup").redis.Do(background, words.(list)...).Err(); err != nil && !errors.Is(err, redis.Nil) {
			r.t.Fatal(err)
		}
	}
	for i, step := range r.of["steps"].(list) {
		r.at = i + 1
		r.step(step.(object))
	}
	if len(r.running) > 0 {
		r.fail("these calls have no step `end`: %v", r.running)
	}
	if r.server != nil {
		select {
		case one := <-r.server.arrived:
			r.fail("an unexpected command: %v", one)
		default:
		}
		r.server.mutex.Lock()
		defer r.server.mutex.Unlock()
		if len(r.server.violations) > 0 {
			r.fail("%v", r.server.violations)
		}
	}
}

func (r *run) close() {
	for _, one := range r.calls {
		one.cancel()
	}
	if r.server != nil && r.t.Failed() {
		r.server.close()
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, one := range r.processes {
		one.client.Close()
		_ = one.redis.Close()
	}
}

func (r *run) step(step object) {
	name := only(step, stepNames...)
	if name == "" {
		panic(unknown(fmt.Sprintf("unknown step %v", step)))
	}
	check(name, step)
	if r.server == nil && slices.Contains([]string{"expect", "expect_all", "answer", "quiet"}, name) {
		return
	}
	actor, _ := step[name].(string)
	switch name {
	case "start":
		r.calls[actor] = r.begin(step)
		r.running = append(r.running, actor)
	case "call":
		r.checkOutcome(r.begin(step), step)
	case "expect":
		one := r.nextCommand()
		if !matches(step["expect"].(list), one.words) {
			r.fail("%v arrived instead of %v", one, step["expect"])
		}
		r.serve(step, one)
	case "expect_all":
		left := slices.Clone(step["expect_all"].(list))
		for len(left) > 0 {
			one := r.nextCommand()
			at := slices.IndexFunc(left, func(of any) bool { return matches(of.(object)["expect"].(list), one.words) })
			if at < 0 {
				r.fail("%v arrived instead of one of %v", one, left)
			}
			check("expect", left[at].(object))
			r.serve(left[at].(object), one)
			left = slices.Delete(left, at, at+1)
		}
	case "answer":
		r.answer(r.held[actor], step["reply"])
		delete(r.held, actor)
	case "called":
		r.checkCalled(r.calls[actor], step)
	case "return":
		r.take(r.calls[actor]).outcome <- outcome{value: step["value"]}
	case "raise":
		r.take(r.calls[actor]).outcome <- outcome{err: loadError(step["message"].(string)), fatal: step["fatal"] == true}
	case "cancel":
		r.calls[actor].cancel()
	case "end":
		r.running = slices.DeleteFunc(r.running, func(other string) bool { return other == actor })
		r.checkOutcome(r.calls[actor], step)
	case "quiet":
		select {
		case one := <-r.server.arrived:
			r.fail("%v arrived", one)
		case <-time.After(time.Duration(whole(step["quiet"])) * time.Millisecond):
		}
	case "pause":
		time.Sleep(time.Duration(whole(step["pause"])) * time.Millisecond)
	}
}

func (r *run) nextCommand() *arrival {
	r.t.Helper()
	select {
	case one := <-r.server.arrived:
		return one
	case <-time.After(patience):
		var ended []string
		for actor, one := range r.calls {
			if isClosed(one.ended) {
				ended = append(ended, fmt.Sprintf("%s: %v, %v", actor, one.result, one.err))
			}
		}
		r.fail("no command arrived; the calls that have ended: %v", ended)
		return nil
	}
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// serve checks the connection of a command, and replies to it or holds it.
func (r *run) serve(step object, one *arrival) {
	if name := textOf(step["on"], ""); name != "" {
		if named := r.connections[name]; named != nil && named != one.connection {
			r.fail("%v arrived on another connection than %s", one, name)
		}
		r.connections[name] = one.connection
	}
	if name := textOf(step["not_on"], ""); name != "" && r.connections[name] == one.connection {
		r.fail("%v arrived on the connection %s", one, name)
	}
	if name := textOf(step["hold"], ""); name != "" {
		r.held[name] = one
	} else {
		r.answer(one, step["reply"])
	}
}

func (r *run) answer(one *arrival, reply any) {
	if reflect.DeepEqual(reply, object{"close": true}) {
		_ = one.connection.peer.Close()
		return
	}
	one.connection.answer(one, encode(reply, one.connection.protocol))
}

// take returns the invocation of an actor's function that is to end.
func (r *run) take(one *call) *invocation {
	if one.pending == nil {
		select {
		case one.pending = <-one.called:
		case <-time.After(patience):
			r.fail("%s has not called its function", one.name)
		case <-one.ended:
			// It may have called its function first.
			select {
			case one.pending = <-one.called:
			default:
				r.fail("%s has ended without calling its function: %v, %v", one.name, one.result, one.err)
			}
		}
	}
	taken := one.pending
	one.pending = nil
	return taken
}

func (r *run) checkCalled(one *call, step object) {
	pending := r.take(one)
	one.pending = pending
	if expected, isGiven := step["ids"]; isGiven {
		ids := itemList(expected)
		if slices.Sort(ids); !slices.Equal(ids, slices.Sorted(slices.Values(pending.ids))) {
			r.fail("it was called with %v", pending.ids)
		}
	}
}

func (r *run) checkOutcome(one *call, step object) {
	r.t.Helper()
	select {
	case <-one.ended:
	case <-time.After(patience):
		r.fail("%s has not ended", one.name)
	}
	name, isError := step["error"].(string)
	if one.panicked != nil {
		if name == "fatal" && one.panicked == any(loadError(step["message"].(string))) {
			return
		}
		panic(one.panicked)
	}
	if !isError {
		if one.err != nil {
			r.fail("%s failed: %v", one.name, one.err)
		}
		if expected := expand(step["result"]); !equal(expected, one.result) {
			r.fail("%s returned %v, not %v", one.name, one.result, expected)
		}
		return
	}
	if !isNamed(name, step, one.err) {
		r.fail("%s: the error is %v, not %s", one.name, one.err, name)
	}
	var known *bloomgate.Error
	errors.As(one.err, &known)
	if expected, isGiven := step["answers"]; isGiven {
		answers := list{}
		for _, answer := range known.Answers {
			answers = append(answers, map[bloomgate.Answer]any{bloomgate.Yes: true, bloomgate.No: false}[answer])
		}
		if !equal(expected, answers) {
			r.fail("the answers are %v", answers)
		}
	}
	if expected, isGiven := step["ids"]; isGiven && !slices.Equal(known.IDs, itemList(expected)) {
		r.fail("the ids are %v", known.IDs)
	}
}

var namedErrors = map[string]error{
	"FilterMissing": bloomgate.ErrFilterMissing, "FilterExists": bloomgate.ErrFilterExists, "FilterFull": bloomgate.ErrFilterFull,
	"FilterLoading": bloomgate.ErrFilterLoading, "ModuleMissing": bloomgate.ErrModuleMissing, "LoadFailed": bloomgate.ErrLoadFailed,
	"Unconfirmed": bloomgate.ErrUnconfirmed, "TimeoutError": bloomgate.ErrNotDurable, "refused": bloomgate.ErrRefused,
	"cancelled": context.Canceled,
}

// isNamed says whether an error is the one that a case names.
func isNamed(name string, step object, err error) bool {
	if named, found := namedErrors[name]; found {
		return errors.Is(err, named)
	}
	var ofServer redis.Error
	var ofModule *bloomgate.Error
	hasKind := errors.As(err, &ofModule) && ofModule.Kind != nil
	switch name {
	case "load", "shared":
		return err == error(loadError(step["message"].(string)))
	case "server":
		return errors.As(err, &ofServer) && !hasKind
	case "connection":
		return err != nil && !errors.As(err, &ofServer) && !hasKind
	}
	panic(unknown("unknown error " + name))
}

func expand(expected any) any {
	if of, isObject := expected.(object); isObject && len(of) == 2 && of["times"] != nil {
		return slices.Repeat(list{of["repeat"]}, whole(of["times"]))
	}
	return expected
}

// equal compares JSON values. Floating-point numbers are compared with a tolerance.
func equal(expected, found any) bool {
	switch expected := expected.(type) {
	case object:
		of, isObject := found.(object)
		if !isObject || len(of) != len(expected) {
			return false
		}
		for name, value := range expected {
			if other, isThere := of[name]; !isThere || !equal(value, other) {
				return false
			}
		}
		return true
	case list:
		of, isList := found.(list)
		return isList && slices.EqualFunc(expected, of, equal)
	case json.Number:
		of, isNumber := found.(json.Number)
		one, _ := expected.Float64()
		other, _ := of.Float64()
		return isNumber && math.Abs(one-other) <= 1e-9*max(math.Abs(one), math.Abs(other))
	}
	return expected == found
}

// plain returns a value as the JSON of the cases has it. Strings that are not UTF-8 are written in hexadecimal digits.
func (r *run) plain(value any) any {
	if text, isText := value.(string); isText && !utf8.ValidString(text) {
		return object{"hex": hex.EncodeToString([]byte(text))}
	}
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return parse(r.t, text)
}

// errType is the error of a call that no program can make, because it does not compile.
var errType = fmt.Errorf("no string: %w", bloomgate.ErrRefused)

// item returns an item or an id. In Go it is a string: other types, and texts with an unpaired surrogate, do not exist.
func item(of any) (string, error) {
	switch of := of.(type) {
	case string:
		if strings.ContainsRune(of, utf8.RuneError) {
			return "", errType
		}
		return of, nil
	case json.Number:
		number, err := of.Int64()
		return bloomgate.Int(number), err
	case object:
		switch name := only(of, "hex", "integer", "boolean", "float", "null"); name {
		case "hex":
			return fromHex(of[name]), nil
		case "integer":
			number, _ := new(big.Int).SetString(of[name].(string), 10)
			return number.String(), nil
		case "boolean", "float", "null":
			return "", errType
		}
	}
	panic(unknown(fmt.Sprintf("unknown item %v", of)))
}

func itemsOf(of any) ([]string, error) {
	if of, isObject := of.(object); isObject {
		if inner, isItems := of["items"].(object); isItems {
			if numbers := listOf(inner["numbers"]); numbers != nil {
				var found []string
				for number := whole(numbers[0]); number < whole(numbers[1]); number++ {
					found = append(found, bloomgate.Int(number))
				}
				return found, nil
			}
			if size, isFilled := inner["filled"]; isFilled {
				return slices.Repeat([]string{strings.Repeat("a", whole(size))}, whole(inner["times"])), nil
			}
		} else if isList := listOf(of["items"]); isList != nil {
			return itemsOf(of["items"])
		}
		panic(unknown(fmt.Sprintf("unknown items %v", of)))
	}
	if _, isText := of.(string); isText {
		return nil, errType
	}
	var found []string
	for _, one := range of.(list) {
		text, err := item(one)
		if err != nil {
			return nil, err
		}
		found = append(found, text)
	}
	return found, nil
}

func itemList(of any) []string {
	found, err := itemsOf(of)
	if err != nil {
		panic(err)
	}
	return found
}
