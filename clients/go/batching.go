package bloomgate

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxDirectFetches is the most fetches of one row that a guard sends separately at a time. Further fetches are batched.
	maxDirectFetches = 8
	// maxBatches is the most commands of each kind in flight for batches. In a burst, callers wait for a batch and not for a connection, which
	// some would not get within a command's time limit.
	maxBatches = 8
	// batchRows is the most rows of several callers in a command. Larger commands gain little, and the reply must arrive within the time limit.
	batchRows = 64
	// fillBytes is the size of a BF.FILL without its value: up to about 500 are sent together.
	fillBytes = commandBytes / batch
)

// batcher collects the requests of many callers until Go's scheduler runs the sending goroutine, or while maxBatches commands are in flight.
// With many callers, most of a command's time is spent in system calls and go-redis.
type batcher struct {
	tasks   *tasks
	mutex   sync.Mutex
	waiting []*work
	senders int
	// most limits the total size of the work that is sent together. A single larger piece of work is sent alone.
	most int
	send func(part []*work)
}

// work is one fetch or one BF.FILL of a batch. done is closed when its answers or its reply have arrived.
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

// add adds work to the next batch.
func (b *batcher) add(all ...*work) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	isFirst := len(b.waiting) == 0
	if b.waiting = append(b.waiting, all...); isFirst && len(all) > 0 {
		b.startSender()
	}
}

// startSender starts a sender, unless maxBatches are running. A sender ends when the queue is empty.
func (b *batcher) startSender() {
	if b.senders == maxBatches {
		return
	}
	b.senders++
	b.tasks.start(func() {
		for part := b.next(); len(part) > 0; part = b.next() {
			b.send(part)
			for _, one := range part {
				close(one.done)
			}
		}
	})
}

// next returns the next work to send, or nothing if the sender must end.
func (b *batcher) next() []*work {
	// The callers that are ready to run add their work first.
	runtime.Gosched()
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if len(b.waiting) == 0 {
		b.senders--
		return nil
	}
	count, size := 0, 0
	for count < len(b.waiting) && (count == 0 || size+b.waiting[count].size <= b.most && b.waiting[count].how == b.waiting[0].how) {
		size += b.waiting[count].size
		count++
	}
	part := slices.Clone(b.waiting[:count])
	b.waiting = slices.Delete(b.waiting, 0, count)
	if len(b.waiting) > 0 {
		b.startSender()
	}
	return part
}

// sendFetches sends the fetches of a batch as one command.
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

// sendFills sends the BF.FILLs of a batch together, for loaded rows and for leases that end.
func (g *commands) sendFills(part []*work) {
	words := make([][]any, len(part))
	for i, one := range part {
		words[i] = one.words
	}
	for i, found := range g.send(part[0].ctx, 0, words...) {
		if part[i].reply = found; found.err != nil && strings.HasPrefix(found.err.Error(), "NOPERM") {
			// The user has no permission to fill, so others would wait until the leases end: query the database for a while.
			g.mutex.Lock()
			g.pausedUntil = time.Now().Add(pause)
			g.mutex.Unlock()
		}
	}
}
