package bloomgate

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
)

const (
	// mostAlone is the most fetches of one row that a guard sends separately at a time. Further callers fetch in turns.
	mostAlone = 8
	// mostTogether is the most commands of each kind in flight for turns. In a burst, callers wait for a turn and not for a connection, which
	// some would not get within a command's time limit.
	mostTogether = 8
	// turnRows is the most rows of several callers in a command. Larger commands gain little, and the reply must arrive within the time limit.
	turnRows = 64
	// fillBytes is the size of a BF.FILL without its value: up to about 500 are sent together.
	fillBytes = commandBytes / batch
)

// turns collect the requests of many callers until Go's scheduler runs the sending goroutine, or while mostTogether commands are in flight.
// With many callers, most of a command's time is spent in system calls and go-redis.
type turns struct {
	tasks   *tasks
	mutex   sync.Mutex
	waiting []*work
	senders int
	// most limits the total size of the work that is sent together. A single larger piece of work is sent alone.
	most int
	send func(part []*work)
}

// work is one fetch or one BF.FILL of a turn. done is closed when its answers or its reply have arrived.
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

// add adds work to the next turn.
func (t *turns) add(all ...*work) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	isFirst := len(t.waiting) == 0
	if t.waiting = append(t.waiting, all...); isFirst && len(all) > 0 {
		t.startSender()
	}
}

// startSender starts a sender, unless mostTogether are running. A sender ends when the queue is empty.
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

// next returns the next work to send, or nothing if the sender must end.
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

// sendFills sends the BF.FILLs of a turn together, for loaded rows and for leases that end.
func (g *commands) sendFills(part []*work) {
	words := make([][]any, len(part))
	for i, one := range part {
		words[i] = one.words
	}
	for i, found := range g.send(part[0].ctx, 0, words...) {
		if part[i].reply = found; found.err != nil && strings.HasPrefix(found.err.Error(), "NOPERM") {
			// The user has no permission to fill, so others would wait until the leases end: query the database for a while.
			g.beginPause()
		}
	}
}
