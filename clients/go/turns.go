package bloomgate

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
)

const (
	// mostAlone is how many fetches of one row a guard sends by themselves at a time. Callers beyond them fetch in turns.
	mostAlone = 8
	// mostTogether is how many commands of each kind a guard sends for turns at a time. Those of a burst wait for their turn, not for a
	// connection: in the time limit of a command they would not all get one.
	mostTogether = 8
	// turnRows is the most rows of several callers in a command. More gain little, and one reply has to arrive within the time limit.
	turnRows = 64
	// fillBytes is the size of a BF.FILL beside its value: some 500 are sent together.
	fillBytes = commandBytes / batch
)

// turns gather what many callers ask for before Go's scheduler runs the goroutine that sends it, together, or while mostTogether commands are
// under way: with many callers, most of the time of a command is that of its system calls and of go-redis.
type turns struct {
	tasks   *tasks
	mutex   sync.Mutex
	waiting []*work
	senders int
	// most is the most that is sent together, of the sizes of work. More is sent if a single piece of work has it.
	most int
	send func(part []*work)
}

// work is one fetch or one BF.FILL of a turn. done is closed when it has its answers or its reply.
type work struct {
	// ctx is never done. A command has the values of its first caller's context.
	ctx     context.Context
	size    int
	ids     []string
	how     fetching
	answers []answer
	words   []any
	reply   reply
	done    chan struct{}
}

// add adds work to a turn.
func (t *turns) add(all ...*work) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	isFirst := len(t.waiting) == 0
	if t.waiting = append(t.waiting, all...); isFirst && len(all) > 0 {
		t.startSender()
	}
}

// startSender starts a sender, if there are not enough of them already. A sender ends when the queue is empty.
func (t *turns) startSender() {
	if t.senders == mostTogether {
		return
	}
	t.senders++
	t.tasks.start(func() {
		for part := t.next(); len(part) > 0; part = t.next() {
			t.send(part)
			for _, one := range part {
				close(one.done)
			}
		}
	})
}

// next returns what is sent next, or nothing if the sender has to end.
func (t *turns) next() []*work {
	// The callers that are ready to run add their work first.
	runtime.Gosched()
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if len(t.waiting) == 0 {
		t.senders--
		return nil
	}
	count, size := 0, 0
	for count < len(t.waiting) && (count == 0 || size+t.waiting[count].size <= t.most && t.waiting[count].how == t.waiting[0].how) {
		size += t.waiting[count].size
		count++
	}
	part := slices.Clone(t.waiting[:count])
	t.waiting = slices.Delete(t.waiting, 0, count)
	if len(t.waiting) > 0 {
		t.startSender()
	}
	return part
}

// sendFetches sends the fetches of a turn as one command.
func (g *commands) sendFetches(part []*work) {
	var ids []string
	for _, one := range part {
		ids = append(ids, one.ids...)
	}
	answers := g.find(part[0].ctx, ids, part[0].how)
	for _, one := range part {
		one.answers, answers = answers[:len(one.ids)], answers[len(one.ids):]
	}
}

// sendFills sends the BF.FILLs of a turn together, of loaded rows or of leases that end.
func (g *commands) sendFills(part []*work) {
	words := make([][]any, len(part))
	for i, one := range part {
		words[i] = one.words
	}
	for i, found := range g.send(part[0].ctx, 0, words...) {
		if part[i].reply = found; found.err != nil && strings.HasPrefix(found.err.Error(), "NOPERM") {
			// The user may not fill, so others would wait until the leases end: they ask the database for a while.
			g.beginPause()
		}
	}
}
