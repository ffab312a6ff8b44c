package bloomgate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Codec converts a row to the bytes that the guard caches, and back. If Decode fails, the guard loads the row and replaces the
// cached value. Every caller gets what Decode returns, the one that loaded the row included.
type Codec[T any] interface {
	Encode(row T) ([]byte, error)
	Decode(data []byte) (T, error)
}

// Bytes returns a codec that leaves bytes as they are.
func Bytes() Codec[[]byte] { return bytesCodec{} }

type bytesCodec struct{}

func (bytesCodec) Encode(row []byte) ([]byte, error)  { return row, nil }
func (bytesCodec) Decode(data []byte) ([]byte, error) { return data, nil }

// JSON returns a codec that writes rows as JSON, without escapes for HTML.
func JSON[T any]() Codec[T] { return jsonCodec[T]{} }

type jsonCodec[T any] struct{}

func (jsonCodec[T]) Encode(row T) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(row)
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), err
}

func (jsonCodec[T]) Decode(data []byte) (row T, err error) {
	err = json.Unmarshal(data, &row)
	return row, err
}

// Guard is a cache in front of a table: an id that does not exist reaches no database, and one caller loads a row that many request.
// Its filter has the id of every row: see [FillFilter]. Make one guard for each table and process, because its callers share the
// rows that they load. docs/guard.md has the protocol, and docs/guard-proof.md its reasons.
type Guard[T any] struct {
	*commands
	codec Codec[T]
	err   error
}

// NewGuard returns the guard with the filter at a key. It sends nothing. If the options are invalid, every call fails with
// [ErrRefused].
func NewGuard[T any](client *Client, filter string, codec Codec[T], options ...Option) *Guard[T] {
	commands, err := newCommands(client, filter, options)
	return &Guard[T]{commands: commands, codec: codec, err: err}
}

// Get returns a row, and whether there is one. load reads the row from the database that has every commit, in a transaction that
// begins when load is called; it returns nil if there is no row. If load asks this guard for the same row with the context that it gets, that
// call loads the row, and sends nothing.
//
// No error of the server is returned. If the server fails, the database is queried and nothing is filled; for two seconds after
// the server has not answered in time, or has refused BF.FILL to this user, it is queried at once. Until then one caller of this process loads a row at a time. Callers that
// arrive during a load share the next one, so each gets a row that was read after its call began. If load fails, the lease is given up; if an old value is cached, that
// is returned instead of the error. Callers of this process that wait for the row share the error, and those that began before its fetch share the row. If load panics or ends its goroutine,
// so does this call, and the others get [ErrLoadFailed] with the cause.
//
// If ctx ends, Get returns its error: at once if it waits for another caller, and otherwise when the reply that is under way has arrived, which
// takes the ReadTimeout of the go-redis client at most. A load that fails after that, or after the deadline of ctx, is taken for cancelled, and its error is
// not shared.
func (g *Guard[T]) Get(ctx context.Context, id string, load func(ctx context.Context) (*T, error)) (value T, found bool, err error) {
	return g.GetWithTTL(ctx, id, g.options.ttl, load)
}

// GetWithTTL is [Guard.Get] with a time to live that replaces the guard's.
func (g *Guard[T]) GetWithTTL(
	ctx context.Context, id string, ttl time.Duration, load func(ctx context.Context) (*T, error),
) (value T, found bool, err error) {
	of, err := g.begin(ctx, ttl, func(ctx context.Context, _ []string) ([]*T, error) {
		row, err := load(ctx)
		return []*T{row}, err
	})
	if err != nil {
		return value, false, err
	}
	row, err := of.get(ctx, id)
	if err != nil || row == nil {
		return value, false, err
	}
	return *row, true, nil
}

// GetInTransaction returns a row inside a transaction of the caller's that may see other rows than the database's commits: its own changes,
// or an older snapshot. A cached row is returned; otherwise, also if the filter answers that there is none, load is called. What it returns
// is neither cached nor shared, and does not pass through the codec.
//
// If the transaction has changed the row, call load yourself: the cached row may be the one before the change.
func (g *Guard[T]) GetInTransaction(
	ctx context.Context, id string, load func(ctx context.Context) (*T, error),
) (value T, found bool, err error) {
	row, err := g.peek(ctx, id)
	if err == nil && row == nil {
		g.count("unguarded", 1)
		row, err = load(ctx)
	}
	if err != nil || row == nil {
		return value, false, err
	}
	return *row, true, nil
}

// GetMany returns rows by id, fetched together. load gets the ids that this caller has to load, and returns the rows that exist.
// It is called once, and again for rows that other callers were loading and did not bring. As for [Guard.Get], no error of the
// server is returned.
func (g *Guard[T]) GetMany(
	ctx context.Context, ids []string, load func(ctx context.Context, ids []string) (map[string]T, error),
) (map[string]T, error) {
	return g.GetManyWithTTL(ctx, ids, g.options.ttl, load)
}

// GetManyWithTTL is [Guard.GetMany] with a time to live that replaces the guard's.
func (g *Guard[T]) GetManyWithTTL(
	ctx context.Context, ids []string, ttl time.Duration, load func(ctx context.Context, ids []string) (map[string]T, error),
) (map[string]T, error) {
	of, err := g.begin(ctx, ttl, func(ctx context.Context, ids []string) ([]*T, error) {
		loaded, err := load(ctx, ids)
		rows := make([]*T, len(ids))
		for i, id := range ids {
			if row, found := loaded[id]; found {
				rows[i] = &row
			}
		}
		return rows, err
	})
	if err != nil {
		return nil, err
	}
	return of.getMany(ctx, ids)
}

// Changed announces ids, calls write, and confirms them, whatever write returns, also if it panics and after ctx has ended. The
// transaction that inserts, changes or deletes the rows has to end inside of write, its outcome known.
//
// If the announcement fails, write is not called. If the confirmation fails, the error is an [ErrUnconfirmed], and that of write if
// it failed, too.
func (g *Guard[T]) Changed(ctx context.Context, ids []string, write func(ctx context.Context) error) (err error) {
	if err := g.Announce(ctx, ids...); err != nil {
		return err
	}
	defer func() {
		if unconfirmed := g.Confirm(ctx, ids...); unconfirmed != nil && err != nil {
			err = fmt.Errorf("%w; %w", unconfirmed, err)
		} else if unconfirmed != nil {
			err = unconfirmed
		}
	}()
	return write(ctx)
}

// Announce is a writer's first call, before the commit. If it fails, do not commit. With a feed it does nothing.
func (g *Guard[T]) Announce(ctx context.Context, ids ...string) error {
	if g.err != nil {
		return g.err
	}
	return g.announce(ctx, ids)
}

// Confirm is a writer's second call, after the commit. It is repeated until the server answers for every id, also after ctx has
// ended, for up to the guard's patience: then it fails with [ErrUnconfirmed]. With a feed it does nothing.
//
// If the outcome of the commit is unknown, find it out before this call, or end the database's session: a commit that lands after
// this call leaves the old row cached.
func (g *Guard[T]) Confirm(ctx context.Context, ids ...string) error {
	if g.err != nil {
		return g.err
	}
	return g.confirm(context.WithoutCancel(ctx), ids)
}

// Forget deletes ids that never return from the filter, after their rows were deleted inside of [Guard.Changed]. The filter needs
// the hash siphash. With a feed it does nothing.
func (g *Guard[T]) Forget(ctx context.Context, ids ...string) error {
	if g.err != nil {
		return g.err
	}
	return g.forget(ctx, ids)
}

// Counts returns how often each event has happened:
//
//   - absent, hit, stale, load, wait, failed: replies of BF.FETCH, one for each row;
//   - filled, lease_lost: loaded rows that were cached, and those that were not, because the row changed or another caller filled it
//     during the load;
//   - load_failed: rows whose load failed;
//   - stale_served, soft_timeout: old values that were served because a load failed, or took too long;
//   - unguarded: rows that were read from the database without a lease: the server failed, or another caller took too long;
//   - shared: answers and errors of another caller of this process, which callers that waited for the row share;
//   - undecodable: cached values that the codec could not decode;
//   - errors: replies that were errors or did not arrive.
func (g *Guard[T]) Counts() map[string]uint64 {
	counts := make(map[string]uint64, len(g.counts))
	for event, count := range g.counts {
		counts[event] = count.Load()
	}
	return counts
}
