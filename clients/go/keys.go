package bloomgate

import (
	"fmt"
	"iter"
	"strings"
)

// Int returns an integer in decimal, as an item or an id. The integer 17 and the string "17" are the same item.
func Int[T ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64](number T) string {
	return fmt.Sprint(number)
}

// IDs returns the ids of a source that cannot fail, for [FillFilter]: IDs(slices.Values(ids)), for instance.
func IDs(source iter.Seq[string]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for id := range source {
			if !yield(id, nil) {
				return
			}
		}
	}
}

// inSlotOf returns a prefix of key names in the cluster slot of a filter. Its hash tag is the text between the first { and the next }, or else
// the whole name.
func inSlotOf(filter string) (string, error) {
	if _, rest, found := strings.Cut(filter, "{"); found && strings.Index(rest, "}") > 0 {
		return filter, nil
	}
	if strings.Contains(filter, "}") {
		return "", refused("no other key shares the slot of %q: rename the filter, or, without a feed, choose a prefix", filter)
	}
	return "{" + filter + "}", nil
}

// CachePrefix returns the prefix of cache keys: {users}: for the filter users. It fails for a name such as users}, because no other key shares
// its slot.
func CachePrefix(filter string) (string, error) {
	base, err := inSlotOf(filter)
	return base + ":", err
}

// FillingName returns the name under which [FillFilter] fills a filter. No cache key has this name. It fails for the same names as
// [CachePrefix].
func FillingName(filter string) (string, error) {
	base, err := inSlotOf(filter)
	return base + "~filling", err
}

// feedKeys are the keys that bloomgate follow uses for a filter; crates/follow/src/config.rs defines their names. The server refuses cache
// keys with the name of the heartbeat, or with names that begin with it and a colon.
type feedKeys struct{ heartbeat, inFlight string }

func feedKeysOf(filter string) (*feedKeys, error) {
	base, err := inSlotOf(filter)
	return &feedKeys{base + ":feed", base + ":feed:open"}, err
}
