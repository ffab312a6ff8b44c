// The frame of go-redis's own tests of its methods for Bloom and cuckoo filters, probabilistic_test.go. Their own frame needs a cluster and
// Sentinels.
package redis_test

import (
	"os"
	"testing"
	"time"

	. "github.com/bsm/ginkgo/v2"
	. "github.com/bsm/gomega"
	"github.com/redis/go-redis/v9"
)

func TestFilters(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "go-redis")
}

// applyREConnection completes the options of all tests.
func applyREConnection(options *redis.Options) {
	options.Addr = os.Getenv("BLOOMGATE_ADDRESS")
	// An add that is sent again after a timeout is not new.
	options.ReadTimeout = 2 * time.Minute
}

func newUniversalSubject(client *redis.Client) (redis.UniversalClient, func() error) {
	return client, client.Close
}

func SkipBeforeRedisVersion(string, string) {}
