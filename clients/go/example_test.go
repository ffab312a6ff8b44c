package bloomgate_test

import (
	"context"
	"fmt"
	"log"
	"maps"
	"time"

	"bloomgate.invalid/bloomgate"
	"github.com/redis/go-redis/v9"
)

// address is the address of the server that TestMain starts.
var address = "localhost:6379"

func ExampleFilter() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: address, ReadTimeout: time.Second})
	defer rdb.Close()
	client := bloomgate.New(rdb)
	defer client.Close()

	seen := bloomgate.NewFilter(client, "seen")
	if _, err := seen.Reserve(ctx, 0.001, 1_000_000, bloomgate.FilterOptions{ExistOK: true}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(seen.Clear(ctx)) // an earlier run may have added items

	fmt.Println(seen.Add(ctx, "https://example.org/"))
	fmt.Println(seen.Add(ctx, "https://example.org/"))
	fmt.Println(seen.AddMany(ctx, []string{"a", "b", "a"}))
	fmt.Println(seen.ExistsMany(ctx, []string{"a", "x"}))
	// Output:
	// <nil>
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
	fmt.Println(bloomgate.FillFilter(ctx, client, "users", bloomgate.IDs(maps.Keys(table)), 0.001, 100_000, siphash))
	users := bloomgate.NewGuard(client, "users", bloomgate.JSON[User](), bloomgate.TTL(time.Minute), bloomgate.FailSafe(time.Hour))

	find := func(id string) func(context.Context) (*User, error) {
		return func(context.Context) (*User, error) {
			if user, found := table[id]; found {
				return &user, nil
			}
			return nil, nil
		}
	}
	fmt.Println(users.Get(ctx, "17", find("17")))
	fmt.Println(users.GetMany(ctx, []string{"17", "18"}, func(ctx context.Context, ids []string) (map[string]User, error) {
		return table, nil // only rows with these ids are used
	}))
	fmt.Println(users.Changed(ctx, []string{"18"}, func(ctx context.Context) error {
		table["18"] = User{"Eve"} // the transaction ends inside this function
		return nil
	}))
	fmt.Println(users.Get(ctx, bloomgate.Int(18), find("18")))
	// Output:
	// 1 <nil>
	// {Ann} true <nil>
	// map[17:{Ann}] <nil>
	// <nil>
	// {Eve} true <nil>
}
