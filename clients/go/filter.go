package bloomgate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
)

const (
	// commandBytes is the maximum size of one command's items in bytes, unless it has one item.
	commandBytes = 1 << 20
	// windowCommands is the number of commands that are sent together, before their replies are awaited.
	windowCommands = 16
)

// Filter is a filter at a key. Items are strings, compared by their bytes. If the context of a call ends, the call returns its error at once;
// a command in flight may still take effect.
type Filter struct {
	client        *Client
	key           string
	withoutCreate bool
}

// NewFilter returns the filter at a key. It sends nothing.
func NewFilter(client *Client, key string) *Filter {
	return &Filter{client: client, key: key}
}

// WithoutCreating returns the same filter, whose adds fail with [ErrFilterMissing] instead of creating it.
func (f *Filter) WithoutCreating() *Filter {
	return &Filter{f.client, f.key, true}
}

// FilterOptions are the options of a new filter. The server checks the values. docs/kinds.md describes the kinds of filters.
type FilterOptions struct {
	// ExistOK allows the filter to exist, with any options.
	ExistOK bool
	// Expansion is the factor from one layer's capacity to the next, 0 to 32768, by default the server's. With 0 the filter does not
	// grow.
	Expansion *int
	// Nonscaling makes a full filter refuse items instead of growing.
	Nonscaling bool
	// Seed is 0 to 2^32 - 1; with the hash siphash 32 hexadecimal digits. Filters with the same seed can be merged.
	Seed string
	// Layout is native or redisbloom.
	Layout string
	// Hash is murmur3 or siphash. siphash is for untrusted items, and allows deletes.
	Hash string
	// Window is the seconds after which an item is forgotten, 1 to 10^10.
	Window int64
	// Rolling keeps at least the last capacity new items.
	Rolling bool
	// Buckets is the maximum number of buckets of a filter that forgets, 3 to 64.
	Buckets int
	// Sliding restarts an item's window when it is added again.
	Sliding bool
	// Cuckoo makes a cuckoo filter: unlimited deletes in little more memory than bits. Every add stores a copy of the item, up to
	// four, and a delete removes one: delete only what was added.
	Cuckoo bool
	// Counting uses counters instead of bits: four times the memory, unlimited deletes.
	Counting bool
	// EX is the key's time to live in seconds, and PX in milliseconds, set only if the filter is created.
	EX, PX int64
}

// words appends the options to a command.
func (o FilterOptions) words(words []any) []any {
	if o.Expansion != nil {
		words = append(words, "EXPANSION", *o.Expansion)
	}
	add := func(isSet bool, more ...any) {
		if isSet {
			words = append(words, more...)
		}
	}
	add(o.Seed != "", "SEED", o.Seed)
	add(o.Layout != "", "LAYOUT", o.Layout)
	add(o.Hash != "", "HASH", o.Hash)
	add(o.Window != 0, "WINDOW", o.Window)
	add(o.Buckets != 0, "BUCKETS", o.Buckets)
	add(o.EX != 0, "EX", o.EX)
	add(o.PX != 0, "PX", o.PX)
	add(o.Nonscaling, "NONSCALING")
	add(o.Rolling, "ROLLING")
	add(o.Sliding, "SLIDING")
	add(o.Cuckoo, "CUCKOO")
	add(o.Counting, "COUNTING")
	return words
}

// send sends a command about the key.
func (f *Filter) send(ctx context.Context, name string, rest ...any) (any, error) {
	value, err := f.client.one(ctx, f.key, append([]any{name, f.key}, rest...)...)
	if err != nil {
		return nil, named(err, f.key, nil)
	}
	return value, nil
}

func (f *Filter) boolean(ctx context.Context, name string, rest ...any) (bool, error) {
	value, err := f.send(ctx, name, rest...)
	if err != nil {
		return false, err
	}
	return toBool(value)
}

func (f *Filter) number(ctx context.Context, name string, rest ...any) (int64, error) {
	value, err := f.send(ctx, name, rest...)
	if err != nil {
		return 0, err
	}
	return toInt(value)
}

func formatRate(rate float64) string { return strconv.FormatFloat(rate, 'g', -1, 64) }

// Reserve creates the filter for a false positive rate and a capacity (BF.RESERVE), and returns whether it is new. It fails with
// [ErrFilterExists] if the key exists, unless the options have ExistOK.
func (f *Filter) Reserve(ctx context.Context, rate float64, capacity int64, options FilterOptions) (bool, error) {
	_, err := f.send(ctx, "BF.RESERVE", options.words([]any{formatRate(rate), capacity})...)
	if options.ExistOK && errors.Is(err, ErrFilterExists) {
		// The reply is the same for a key of another type, for which this fails.
		_, err = f.Info(ctx)
		return false, err
	}
	return err == nil, err
}

// Add adds an item, and returns whether it was new.
func (f *Filter) Add(ctx context.Context, item string) (bool, error) {
	answers, err := f.AddMany(ctx, []string{item})
	return err == nil && answers[0], err
}

// AddMany adds items, up to 500 per command (BF.MADD), and returns which were new. If a command fails, the [Error] has the known answers.
func (f *Filter) AddMany(ctx context.Context, items []string) ([]bool, error) {
	words := []any{"BF.MADD", f.key}
	if f.withoutCreate {
		words = []any{"BF.INSERT", f.key, "NOCREATE", "ITEMS"}
	}
	return f.batch(ctx, words, IDs(slices.Values(items)), durability{})
}

// Exists returns whether an item may be in the filter.
func (f *Filter) Exists(ctx context.Context, item string) (bool, error) {
	return f.boolean(ctx, "BF.EXISTS", item)
}

// ExistsMany returns which items may be in the filter (BF.MEXISTS).
func (f *Filter) ExistsMany(ctx context.Context, items []string) ([]bool, error) {
	return f.batch(ctx, []any{"BF.MEXISTS", f.key}, IDs(slices.Values(items)), durability{})
}

// Delete deletes an item, and returns whether it was found. The filter needs Cuckoo, the hash siphash or Counting.
func (f *Filter) Delete(ctx context.Context, item string) (bool, error) {
	return f.boolean(ctx, "BF.DEL", item)
}

// DeleteMany deletes items (BF.MDEL), and returns which were found.
func (f *Filter) DeleteMany(ctx context.Context, items []string) ([]bool, error) {
	return f.batch(ctx, []any{"BF.MDEL", f.key}, IDs(slices.Values(items)), durability{})
}

// Count returns how often an item is in a filter with Cuckoo (from 4 on: or more) or Counting (at most 15). The server refuses other
// filters.
func (f *Filter) Count(ctx context.Context, item string) (int64, error) {
	return f.number(ctx, "BF.COUNT", item)
}

// Card returns the number of items that were added.
func (f *Filter) Card(ctx context.Context) (int64, error) { return f.number(ctx, "BF.CARD") }

// Clear removes all items and keeps the options.
func (f *Filter) Clear(ctx context.Context) error {
	_, err := f.send(ctx, "BF.CLEAR")
	return err
}

// Drop deletes the key, and returns whether it existed.
func (f *Filter) Drop(ctx context.Context) (bool, error) { return f.boolean(ctx, "UNLINK") }

// Info returns the filter's capacity, size and number of items (BF.INFO).
func (f *Filter) Info(ctx context.Context) (Info, error) {
	value, err := f.send(ctx, "BF.INFO")
	return read(value, err, (*fields).info)
}

// Stats returns the filter's kind, fill and current error rate (BF.STATS). The server reads at most 1 MiB of each layer.
func (f *Filter) Stats(ctx context.Context) (Stats, error) {
	value, err := f.send(ctx, "BF.STATS")
	return read(value, err, (*fields).stats)
}

// PlanFilter returns the size of a filter with these options and this many items (BF.PLAN); with 0 items, its size when it is created.
func PlanFilter(ctx context.Context, client *Client, rate float64, capacity, items int64, options FilterOptions) (Plan, error) {
	words := options.words([]any{"BF.PLAN", formatRate(rate), capacity})
	if items != 0 {
		words = append(words, "ITEMS", items)
	}
	value, err := client.one(ctx, "", words...)
	return read(value, withoutModule(err), (*fields).plan)
}

// withItems returns a command with items after its other arguments.
func withItems(words []any, items []string) []any {
	words = slices.Clone(words)
	for _, item := range items {
		words = append(words, item)
	}
	return words
}

// windows groups items into the commands that are sent together. It ends with the first error of the source.
func windows(items iter.Seq2[string, error]) iter.Seq2[[][]string, error] {
	return func(yield func([][]string, error) bool) {
		var window [][]string
		bytes := 0
		for item, err := range items {
			if err != nil {
				yield(nil, err)
				return
			}
			last := len(window) - 1
			if last >= 0 && len(window[last]) < batch && bytes+len(item) <= commandBytes {
				window[last] = append(window[last], item)
				bytes += len(item)
				continue
			}
			if len(window) == windowCommands {
				if !yield(window, nil) {
					return
				}
				window = nil
			}
			window, bytes = append(window, []string{item}), len(item)
		}
		if len(window) > 0 {
			yield(window, nil)
		}
	}
}

// batch sends a command with the items of a batch after its other arguments, up to 16 commands at a time.
func (f *Filter) batch(ctx context.Context, words []any, items iter.Seq2[string, error], safe durability) ([]bool, error) {
	all := []bool{}
	for window, err := range windows(items) {
		if err != nil {
			return nil, &Error{Key: f.key, Err: err}
		}
		var commands [][]any
		for _, part := range window {
			commands = append(commands, withItems(words, part))
		}
		replies, lost := safe.ask(ctx, f.client, f.key, commands...)
		answers, err := collect(window, replies)
		if err == nil {
			err = lost
		}
		if err != nil {
			known := make([]Answer, len(all), len(all)+len(answers))
			for i, isTrue := range all {
				known[i] = toAnswer(isTrue)
			}
			return nil, named(err, f.key, append(known, answers...))
		}
		for _, one := range answers {
			all = append(all, one == Yes)
		}
	}
	return all, nil
}

func toAnswer(isTrue bool) Answer {
	if isTrue {
		return Yes
	}
	return No
}

// collect returns the answers of a batch in the order of its items, and its first error. A command that failed midway answers a
// shorter array, whose last element is the error.
func collect(window [][]string, replies []reply) (answers []Answer, first error) {
	for i, part := range window {
		elements, isList := replies[i].value.([]any)
		err := replies[i].err
		if err == nil && !isList {
			err = unexpected(replies[i].value)
		}
		known := make([]Answer, len(part))
		for j := range known {
			if err != nil {
				break
			}
			if j >= len(elements) {
				err = unexpected(fmt.Sprintf("%d answers for %d items", len(elements), len(part)))
				break
			}
			one := split(elements[j])
			isTrue, unknown := toBool(one.value)
			if err = one.err; err == nil {
				err = unknown
			}
			if err == nil {
				known[j] = toAnswer(isTrue)
			}
		}
		answers = append(answers, known...)
		if first == nil {
			first = err
		}
	}
	return answers, first
}
