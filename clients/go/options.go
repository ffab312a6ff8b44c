package bloomgate

import (
	"log/slog"
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
	patience                    time.Duration
	prefix                      *string
	announceTo                  []string
	durability                  durability
	logger                      *slog.Logger
	observe                     func(event string, number int)
}

func defaults() options {
	return options{
		ttl: time.Minute, absentTTL: 10 * time.Second, lease: 3 * time.Second, wait: 3 * time.Second, attempts: 3, beta: 1,
		patience: 30 * time.Second, durability: durability{timeout: time.Second}, logger: slog.Default(),
		observe: func(string, int) {},
	}
}

// TTL sets the time to live of a cached row, shortened by up to a tenth at random: 60 s. It bounds how long readers get an old row
// after a writer has died.
func TTL(time time.Duration) Option { return func(o *options) { o.ttl = time } }

// AbsentTTL sets the time to live of the knowledge that there is no row: 10 s.
func AbsentTTL(time time.Duration) Option { return func(o *options) { o.absentTTL = time } }

// Lease sets how long one caller may take to load a row while the others wait: 3 s.
func Lease(time time.Duration) Option { return func(o *options) { o.lease = time } }

// Wait sets how long the others wait for it at a time: 3 s. With 0 they query the database at once.
func Wait(time time.Duration) Option { return func(o *options) { o.wait = time } }

// Attempts sets how often a caller waits that long before it queries the database itself: 3 times.
func Attempts(number int) Option { return func(o *options) { o.attempts = number } }

// FailSafe sets how long a value stays in the cache after its time to live. One caller refreshes such a value, the others get it
// meanwhile, and every caller gets it if the load fails. Then nobody queries the database for the row before a back-off has passed;
// callers without an old value get [ErrLoadFailed].
func FailSafe(time time.Duration) Option { return func(o *options) { o.failSafe = time } }

// SoftTimeout sets after which time a caller gets the old value, if there is one, while the load goes on in the background. Its
// context then no longer ends with the caller's.
func SoftTimeout(time time.Duration) Option { return func(o *options) { o.softTimeout = time } }

// Beta multiplies how long before its end a value is renewed; 1 suits most, 0 turns early renewal off.
func Beta(factor float64) Option { return func(o *options) { o.beta = factor } }

// Patience sets how long a confirmation is repeated: 30 s.
func Patience(time time.Duration) Option { return func(o *options) { o.patience = time } }

// Prefix sets what precedes an id in the name of its cache key, by default [CachePrefix].
func Prefix(prefix string) Option { return func(o *options) { o.prefix = &prefix } }

// AnnounceTo names filters that are being filled, to which each id is announced first.
func AnnounceTo(filters ...string) Option { return func(o *options) { o.announceTo = filters } }

// Replicas sets how many replicas must have a change before it counts (WAIT). Not for a cluster.
func Replicas(number int) Option { return func(o *options) { o.durability.replicas = number } }

// AOF demands that the append-only file on disk has a change before it counts (WAITAOF). Not for a cluster.
func AOF() Option { return func(o *options) { o.durability.aof = true } }

// ReplicasTimeout sets how long to wait for the replicas and the append-only file: 1 s.
func ReplicasTimeout(time time.Duration) Option {
	return func(o *options) { o.durability.timeout = time }
}

// Feed is for a table that bloomgate follow follows (docs/feed.md): writers call nothing, and the calls for writers do nothing.
// AnnounceTo, Replicas and AOF are refused.
func Feed() Option { return func(o *options) { o.feed = true } }

// Logger sets where the guard warns of trouble that it goes on after, at most once a minute for each kind: [slog.Default].
func Logger(logger *slog.Logger) Option { return func(o *options) { o.logger = logger } }

// Observe sets a function that is called for every event that [Guard.Counts] counts, for metrics. It must not block.
func Observe(observe func(event string, number int)) Option {
	return func(o *options) { o.observe = observe }
}

// check refuses options that have no meaning.
func (o *options) check(isCluster bool) error {
	for name, value := range map[string]time.Duration{"TTL": o.ttl, "AbsentTTL": o.absentTTL, "Lease": o.lease} {
		if value <= 0 {
			return refused("%s is more than 0, not %v", name, value)
		}
	}
	least := map[string]time.Duration{"Wait": o.wait, "FailSafe": o.failSafe, "SoftTimeout": o.softTimeout, "Patience": o.patience}
	for name, value := range least {
		if value < 0 {
			return refused("%s is at least 0, not %v", name, value)
		}
	}
	if o.attempts < 1 || !(o.beta >= 0) {
		return refused("Attempts is at least 1, and Beta at least 0")
	}
	if o.feed && (len(o.announceTo) > 0 || o.durability.isAsked()) {
		return refused("with a feed the follower announces changes: AnnounceTo, Replicas and AOF have no effect")
	}
	return o.durability.check(isCluster)
}

// milliseconds returns whole milliseconds, at least 1 of a time that is more than 0.
func milliseconds(time time.Duration) int64 {
	if time > 0 {
		return max(1, time.Milliseconds())
	}
	return 0
}
