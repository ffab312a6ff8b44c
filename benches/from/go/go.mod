module bloomgate/bench/from

go 1.25.0

require (
	github.com/redis/rueidis v1.0.76
	github.com/redis/rueidis/rueidisprob v1.0.76
)
