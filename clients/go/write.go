package bloomgate

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"
)

// durability is how many replicas must acknowledge a write, and whether the append-only file must contain it.
type durability struct {
	replicas int
	aof      bool
	timeout  time.Duration
}

func (d durability) isAsked() bool { return d.aof || d.replicas != 0 }

// ask sends writes about a key, and waits for their durability. WAIT and WAITAOF must be sent on the same connection as the writes; on another
// connection they answer at once.
func (d durability) ask(ctx context.Context, c *Client, key string, words ...[]any) ([]reply, error) {
	if !d.isAsked() {
		return c.askAtOnce(ctx, key, 0, words...), nil
	}
	wait := []any{"WAIT", d.replicas, milliseconds(d.timeout)}
	if d.aof {
		wait = []any{"WAITAOF", 1, d.replicas, milliseconds(d.timeout)}
	}
	replies := c.askAtOnce(ctx, key, d.timeout, append(words, wait)...)
	last := len(replies) - 1
	return replies[:last], d.lost(replies[last])
}

// lost returns the error of a reply of WAIT or WAITAOF.
func (d durability) lost(one reply) error {
	if one.err != nil {
		return one.err
	}
	numbers := []any{int64(1), one.value}
	if both, isList := one.value.([]any); isList && len(both) == 2 {
		numbers = both
	}
	onDisk, _ := numbers[0].(int64)
	replicas, _ := numbers[1].(int64)
	switch {
	case onDisk < 1:
		return &Error{Kind: ErrNotDurable, Err: fmt.Errorf("the append-only file does not have it")}
	case replicas < int64(d.replicas):
		return &Error{Kind: ErrNotDurable, Err: fmt.Errorf("%d of %d replicas have it", replicas, d.replicas)}
	}
	return nil
}

// Announce announces changes before their commit. If it fails, do not commit. With a feed it does nothing.
func (g *commands) Announce(ctx context.Context, ids ...string) error {
	if g.err != nil || g.feed != nil {
		return g.err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	change := func(ctx context.Context) []error { return g.change(ctx, ids) }
	failed, err := finish(ctx, g.client, change, func(context.Context, []error) {})
	if at := slices.IndexFunc(failed, isError); err == nil && at >= 0 {
		return failed[at]
	}
	return err
}

func isError(err error) bool { return err != nil }

// Confirm confirms changes after their commit. It repeats failed confirmations for up to the guard's patience, even after ctx has ended, then
// fails with [ErrUnconfirmed]. With a feed it does nothing.
//
// If the outcome of the commit is unknown, determine it before this call, or end the database session: a commit after this call leaves the old
// row cached.
func (g *commands) Confirm(ctx context.Context, ids ...string) error {
	if g.err != nil || g.feed != nil {
		return g.err
	}
	ctx = context.WithoutCancel(ctx)
	begun := time.Now()
	for len(ids) > 0 {
		var left []string
		var cause error
		for i, err := range g.change(ctx, ids) {
			if err != nil {
				left, cause = append(left, ids[i]), err
			}
		}
		if ids = left; len(ids) == 0 {
			break
		}
		if time.Since(begun) >= g.options.patience {
			return &Error{Kind: ErrUnconfirmed, Key: g.filter, IDs: ids, Err: cause}
		}
		time.Sleep(retryInterval)
	}
	return nil
}

// change announces a change of each id, to the filters that are being filled first. It returns an error or nil for each.
func (g *commands) change(ctx context.Context, ids []string) []error {
	var errs []error
	for part := range slices.Chunk(ids, batch) {
		replies, lost := g.options.durability.ask(ctx, g.client, g.filter, g.changes(part)...)
		g.record(replies)
		of := make([]error, len(part))
		for _, one := range replies {
			answers := []reply{one}
			if len(part) > 1 {
				answers = spread(one, len(part))
			}
			for id, answer := range answers {
				if of[id] == nil {
					of[id] = withoutModule(answer.err)
				}
			}
		}
		for _, err := range of {
			if lost != nil {
				err = lost
			}
			errs = append(errs, err)
		}
	}
	return errs
}

// changes returns the commands that announce changes, one for each filter.
func (g *commands) changes(ids []string) [][]any {
	var words [][]any
	for _, filter := range append(slices.Clone(g.options.announceTo), g.filter) {
		all := []any{"BF.MCHANGED", filter, "ITEMS"}
		if len(ids) == 1 {
			all = []any{"BF.CHANGED", filter}
		}
		words = append(words, g.withKeys(all, ids))
	}
	return words
}

// Forget deletes ids from the filter after their rows were deleted inside [Guard.Changed]. Deleted ids must never be used again. The filter
// needs the hash siphash. With a feed it does nothing.
func (g *commands) Forget(ctx context.Context, ids ...string) error {
	if g.err != nil || g.feed != nil {
		return g.err
	}
	for part := range slices.Chunk(ids, batch) {
		reply := g.client.askAtOnce(ctx, g.filter, 0, withItems([]any{"BF.MDEL", g.filter}, part))[0]
		for _, answer := range spread(reply, len(part)) {
			if answer.err != nil {
				return withoutModule(answer.err)
			}
		}
	}
	return nil
}

// FillOptions are the options of [FillFilter].
type FillOptions struct {
	// FilterOptions are the options of the filter, without ExistOK.
	FilterOptions
	// Replicas is the number of replicas that must acknowledge the filter. To survive a failover, it must include every replica that may be
	// promoted.
	Replicas int
	// AOF requires that the append-only file contains the filter, so that it survives a restart.
	AOF bool
	// ReplicasTimeout is how long each batch waits for acknowledgements: 3 s by default.
	ReplicasTimeout time.Duration
}

// FillFilter fills the filter of a guard as [FillingName], then renames it to key. It returns the number of new ids. Until the rename,
// writers must announce to both names. If the filter loses ids, their rows are reported absent.
//
// The source yields an error if it cannot read all ids, such as the error of [database/sql.Rows] after the last row. FillFilter then fails
// with it, and the filter at key is unchanged. [IDs] makes a source of ids in memory.
//
// It fails with [ErrFilterExists] if another client may be filling the filter, and with [ErrNotDurable] if a batch or the rename was not
// acknowledged in time. After any other error the filling name may exist: delete it and start again.
func FillFilter(
	ctx context.Context, client *Client, key string, ids iter.Seq2[string, error], rate float64, capacity int64, options FillOptions,
) (int, error) {
	safe := durability{options.Replicas, options.AOF, options.ReplicasTimeout}
	if safe.timeout == 0 {
		safe.timeout = 3 * time.Second
	}
	name, err := FillingName(key)
	if err == nil {
		checked := defaults()
		checked.durability = safe
		err = checked.check(client.cluster != nil)
	}
	if err == nil && options.ExistOK {
		err = refused("an existing filter is being filled by another client: FillFilter does not accept ExistOK")
	}
	if err != nil {
		return 0, err
	}
	filling := NewFilter(client, name).WithoutCreating()
	if _, err := filling.Reserve(ctx, rate, capacity, options.FilterOptions); err != nil {
		return 0, err
	}
	// With SYNC, the server also replicates ids that were not new: another client may have added them, and the replicas may lack its writes.
	added, err := filling.batch(ctx, []any{"BF.INSERT", name, "NOCREATE", "SYNC", "ITEMS"}, ids, safe)
	if err != nil {
		return 0, err
	}
	replies, err := safe.ask(ctx, client, name, []any{"RENAME", name, key})
	if replies[0].err != nil {
		return 0, named(replies[0].err, name, nil)
	}
	number := 0
	for _, isNew := range added {
		if isNew {
			number++
		}
	}
	return number, err
}
