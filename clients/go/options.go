package bloomgate

import (
	"cmp"
	"log/slog"
	"strconv"
	"time"
)

// Option is an option of a [Guard]. docs/guard.md has the protocol.
type Option func(*options)

type options struct {
	ttl, absentTTL, lease, wait time.Duration
	attempts                    int
	failSafe, softTimeout       time.Duration
	beta                        float64
	feed                        bool
	fresh                       time.Duration
	patience                    time.Duration
	prefix                      *string
	announceTo                  []string
	durability                  durability
	logger                      *slog.Logger
	observe                     func(event string, number int)
}

func defaults() options {
	var o options
	// scripts/generate-options writes these lines.
	o.ttl = 60_000 * time.Millisecond
	o.absentTTL = 10_000 * time.Millisecond
	o.lease = 3000 * time.Millisecond
	o.wait = 3000 * time.Millisecond
	o.attempts = 3
	o.beta = 1
	o.patience = 30_000 * time.Millisecond
	o.durability.timeout = 1000 * time.Millisecond
	o.logger, o.observe = slog.Default(), func(string, int) {}
	return o
}

// TTL sets the time to live of a cached row, shortened by up to a tenth at random: 60 s. It bounds how long readers get an old row
// after a writer has died.
func TTL(duration time.Duration) Option { return func(o *options) { o.ttl = duration } }

// AbsentTTL sets the time to live of a cached absence: 10 s.
func AbsentTTL(duration time.Duration) Option { return func(o *options) { o.absentTTL = duration } }

// Lease sets how long one caller may load a row while others wait: 3 s, up to an hour.
func Lease(duration time.Duration) Option { return func(o *options) { o.lease = duration } }

// Wait sets how long a caller waits for another caller's load at a time: 3 s. With 0 it queries the database at once.
func Wait(duration time.Duration) Option { return func(o *options) { o.wait = duration } }

// Attempts sets how many times a caller waits before it queries the database: 3 times.
func Attempts(number int) Option { return func(o *options) { o.attempts = number } }

// FailSafe sets how long a value stays cached after its time to live. One caller refreshes such a value; in the meantime, others get the
// old value, and every caller gets it if the load fails. The row is then not loaded again until a back-off ends; callers without an old
// value get [ErrLoadFailed].
func FailSafe(duration time.Duration) Option { return func(o *options) { o.failSafe = duration } }

// SoftTimeout sets how long a caller waits for a load before it gets the old value, if one is cached. The load continues in the background,
// and its context no longer ends with the caller's.
func SoftTimeout(duration time.Duration) Option { return func(o *options) { o.softTimeout = duration } }

// Beta scales how early values are renewed before they expire, up to 1000; 1 suits most uses, 0 batcher early renewal off. Values are renewed
// earlier if loads take longer.
func Beta(factor float64) Option { return func(o *options) { o.beta = factor } }

// Patience sets how long a confirmation is repeated: 30 s.
func Patience(duration time.Duration) Option { return func(o *options) { o.patience = duration } }

// Prefix sets the prefix of cache keys, by default [CachePrefix].
func Prefix(prefix string) Option { return func(o *options) { o.prefix = &prefix } }

// AnnounceTo names filters that are being filled, to which each id is announced first.
func AnnounceTo(filters ...string) Option { return func(o *options) { o.announceTo = filters } }

// Replicas sets how many replicas must acknowledge a change (WAIT). Not for a cluster.
func Replicas(number int) Option { return func(o *options) { o.durability.replicas = number } }

// AOF requires that the append-only file on disk contains a change (WAITAOF). Not for a cluster.
func AOF() Option { return func(o *options) { o.durability.aof = true } }

// ReplicasTimeout sets how long to wait for the replicas and the append-only file: 1 s.
func ReplicasTimeout(duration time.Duration) Option {
	return func(o *options) { o.durability.timeout = duration }
}

// Feed is for a table that is followed by bloomgate follow (docs/feed.md): writers need no guard, and the guard's calls for writers do
// nothing. AnnounceTo, Replicas and AOF are refused.
func Feed() Option { return func(o *options) { o.feed = true } }

// Fresh limits the age of an answer while the follower's heartbeat is missing, from the lease to an hour: each row is then read from the
// database once in this time. With 0, the default, a cached value is served for its time to live. It needs [Feed].
func Fresh(duration time.Duration) Option { return func(o *options) { o.fresh = duration } }

// Logger sets where the guard logs errors that it recovers from, at most once a minute for each kind. The default, also for nil, is
// [slog.Default].
func Logger(logger *slog.Logger) Option {
	return func(o *options) { o.logger = cmp.Or(logger, slog.Default()) }
}

// Observe sets a function that is called for every event that [Guard.Counts] counts, for metrics. It must not block. With nil no function
// is called.
func Observe(observe func(event string, number int)) Option {
	return func(o *options) {
		if o.observe = observe; observe == nil {
			o.observe = func(string, int) {}
		}
	}
}

// option is an option with a range.
type option struct {
	name string
	// of returns the option's value; for a time, in milliseconds.
	of          func(*options) float64
	least, most float64
	isTime      bool
}

var ranges = []option{
	// scripts/generate-options writes these lines.
	{"TTL", func(o *options) float64 { return inMS(o.ttl) }, 1, 1_000_000_000_000, true},
	{"AbsentTTL", func(o *options) float64 { return inMS(o.absentTTL) }, 1, 1_000_000_000_000, true},
	{"Lease", func(o *options) float64 { return inMS(o.lease) }, 1, 3_600_000, true},
	{"Wait", func(o *options) float64 { return inMS(o.wait) }, 0, 86_400_000, true},
	{"Attempts", func(o *options) float64 { return float64(o.attempts) }, 1, 1000, false},
	{"FailSafe", func(o *options) float64 { return inMS(o.failSafe) }, 0, 1_000_000_000_000, true},
	{"SoftTimeout", func(o *options) float64 { return inMS(o.softTimeout) }, 0, 86_400_000, true},
	{"Beta", func(o *options) float64 { return o.beta }, 0, 1000, false},
	{"Fresh", func(o *options) float64 { return inMS(o.fresh) }, 0, 3_600_000, true},
	{"Patience", func(o *options) float64 { return inMS(o.patience) }, 0, 86_400_000, true},
	{"Replicas", func(o *options) float64 { return float64(o.durability.replicas) }, 0, 1000, false},
	{"ReplicasTimeout", func(o *options) float64 { return inMS(o.durability.timeout) }, 1, 86_400_000, true},
}

var ttlRange = ranges[0]

func inMS(duration time.Duration) float64 { return float64(duration) / float64(time.Millisecond) }

// check refuses a value that is out of the option's range.
func (r option) check(value float64) error {
	if value >= r.least && value <= r.most {
		return nil
	}
	unit := ""
	if r.isTime {
		unit = " ms"
	}
	text := strconv.FormatFloat(value, 'f', -1, 64)
	return refused("%s is from %.0f to %.0f%s, not %s%s", r.name, r.least, r.most, unit, text, unit)
}

// check refuses options that are out of their ranges, or that exclude each other.
func (o *options) check(isCluster bool) error {
	for _, one := range ranges {
		if err := one.check(one.of(o)); err != nil {
			return err
		}
	}
	switch {
	case o.feed && (len(o.announceTo) > 0 || o.durability.isAsked()):
		return refused("with a feed the follower announces changes: AnnounceTo, Replicas and AOF have no effect")
	case o.fresh != 0 && (!o.feed || o.fresh < o.lease):
		return refused("Fresh needs Feed, and must be at least the lease")
	case o.durability.isAsked() && isCluster:
		return refused("Replicas and AOF need the client of a single server")
	}
	return nil
}

// milliseconds returns a duration in whole milliseconds, at least 1 if it is positive.
func milliseconds(duration time.Duration) int64 {
	if duration > 0 {
		return max(1, duration.Milliseconds())
	}
	return 0
}
