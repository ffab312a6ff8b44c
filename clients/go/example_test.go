package bloomgate_test

import (
	"context"
	"fmt"
	"maps"
	"time"

	"bloomgate.invalid/bloomgate"
	"github.com/redis/go-redis/v9"
)

// address is that of the server. TestMain starts one.
var address = "localhost:6379"

func ExampleFilter() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: address, ReadTimeout: time.Second})
	defer rdb.Close()
	client := bloomgate.New(rdb)
	defer client.Close()

	seen := bloomgate.NewFilter(client, "seen")
	fmt.Println(seen.Reserve(ctx, 0.001, 1_000_000, bloomgate.FilterOptions{ExistOK: true}))

	fmt.Println(seen.Add(ctx, "https://example.org/"))
	fmt.Println(seen.Add(ctx, "https://example.org/"))
	fmt.Println(seen.AddMany(ctx, []string{"a", "b", "a"}))
	fmt.Println(seen.ExistsMany(ctx, []string{"a", "x"}))
	// Output:
	// true <nil>
	// true <nil>
	// false <nil>
	// [true true false] <nil>
	// [true false] <nil>
}

func ExampleGuard() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: address, ReadTimeout: time.Second})
	defer rdb.Close()
	client := bloomgate.New(rdb)
	defer client.Close()

	type User struct{ Name string }
	table := map[string]User{"17": {"Ann"}} // stands for the database
	siphash := bloomgate.FillOptions{FilterOptions: bloomgate.FilterOptions{Hash: "siphash"}}
	fmt.Println(bloomgate.FillFilter(ctx, client, "users", maps.Keys(table), 0.001, 100_000, siphash))
	users := bloomgate.NewGuard(client, "users", bloomgate.JSON[User](), bloomgate.TTL(time.Minute), bloomgate.FailSafe(time.Hour))

	find := func(ctx context.Context) (*User, error) {
		user, found := table["17"]
		if !found {
			return nil, nil
		}
		return &user, nil
	}
	fmt.Println(users.Get(ctx, bloomgate.Int(17), find))
	fmt.Println(users.GetMany(ctx, []string{"17", "18"}, func(ctx context.Context, ids []string) (map[string]User, error) {
		return table, nil // of which only the rows with these ids count
	}))
	fmt.Println(users.Changed(ctx, []string{"17"}, func(ctx context.Context) error {
		table["17"] = User{"Anna"} // the transaction ends in here
		return nil
	}))
	fmt.Println(users.Get(ctx, bloomgate.Int(17), find))
	// Output:
	// 1 <nil>
	// {Ann} true <nil>
	// map[17:{Ann}] <nil>
	// <nil>
	// {Anna} true <nil>
}
