module bloomgate.invalid/scoreboard

go 1.26.0

require (
	bloomgate.invalid/bloomgate v0.0.0
	github.com/go-redis/cache/v9 v9.0.0
	github.com/redis/go-redis/v9 v9.23.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/klauspost/compress v1.13.6 // indirect
	github.com/vmihailenco/go-tinylfu v0.2.2 // indirect
	github.com/vmihailenco/msgpack/v5 v5.3.4 // indirect
	github.com/vmihailenco/tagparser/v2 v2.0.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sync v0.1.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)

replace bloomgate.invalid/bloomgate => ../../../clients/go
