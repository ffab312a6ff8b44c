package bloomgate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Codec converts a row to the bytes that the guard caches, and back. If Decode fails, the guard loads the row and replaces the cached value.
// Every caller gets the result of Decode, including the caller that loaded the row.
type Codec[T any] interface {
	Encode(row T) ([]byte, error)
	Decode(data []byte) (T, error)
}

// Bytes returns a codec that returns bytes unchanged.
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

// Guard is a cache in front of a table. Ids that do not exist never reach the database, and one caller loads a row that many request. The
// filter contains the id of every row: see [FillFilter]. Make one guard per table and process, because its callers share loads. docs/guard.md
// has the protocol, and docs/guard-proof.md its reasons.
type Guard[T any] struct {
	*commands
	codec Codec[T]
}

// NewGuard returns the guard with the filter at a key. It sends nothing. If the options are invalid, every call fails with
// [ErrRefused].
func NewGuard[T any](client *Client, filter string, codec Codec[T], options ...Option) *Guard[T] {
	return &Guard[T]{newCommands(client, filter, options), codec}
}

// Get returns a row, and whether it exists. load reads the row from the primary database in a transaction that begins with the call, and
// returns nil if the row does not exist. A call for the same row inside load, with the context that load receives, runs its own load and sends
// nothing.
//
// Errors of the server are not returned. If the server fails, the row is read from the database and not cached. After a time-out, or if
// BF.FILL is not permitted, the database is queried directly for two seconds. Without the server, one caller of this process loads a row at a
// time. Callers that arrive during a load share the next one, so each gets a row that was read after its call began. If load fails, the lease
// is given up; if an old value is cached, it is returned instead of the error. Callers of this process that wait for the row share the error,
// and callers that began before its fetch share the row. If load panics or ends its goroutine, so does this call, and the others get
// [ErrLoadFailed] with the cause.
//
// If ctx ends, Get returns the error of ctx: at once if it waits for another caller, otherwise when the reply in flight has arrived, after at
// most the ReadTimeout of the go-redis client. A load that fails after that, or after the deadline of ctx, counts as cancelled, and its error
// is not shared.
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

// GetInTransaction returns a row inside the caller's transaction, whose view may differ from the committed rows: it may see its own changes,
// or an older snapshot. It returns a cached row; otherwise it calls load, even if the filter does not contain the id. The loaded row is
// neither cached nor shared, and is not encoded.
//
// If the transaction has changed the row, call load directly: the cached row may be older than the change.
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

// GetMany returns rows by id, fetched together. load returns the rows that exist; it is called once with the ids that this caller has to load,
// and again with ids whose loads by other callers did not complete. As for [Guard.Get], errors of the server are not returned.
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

// Changed announces ids, calls write, and confirms the ids, even if write fails or panics, or ctx has ended. The transaction that inserts,
// changes or deletes the rows must end inside write, with a known outcome.
//
// If the announcement fails, write is not called. If the confirmation fails, the error is an [ErrUnconfirmed], joined with the error of write.
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

// Counts returns the number of each event:
//
//   - absent, hit, stale, load, wait, failed: replies of BF.FETCH, one for each row;
//   - filled, lease_lost: loaded rows that were cached, and loaded rows that were not, because the row changed or another caller filled it
//     during the load;
//   - load_failed: rows whose load failed;
//   - stale_served, soft_timeout: old values that were served because a load failed, or took too long;
//   - unguarded: rows that were read from the database without a lease: the server failed, or another caller took too long;
//   - shared: answers and errors that waiting callers got from another caller of this process;
//   - undecodable: cached values that the codec could not decode;
//   - errors: replies that were errors or did not arrive.
func (g *Guard[T]) Counts() map[string]uint64 {
	counts := make(map[string]uint64, len(g.counts))
	for event, count := range g.counts {
		counts[event] = count.Load()
	}
	return counts
}
