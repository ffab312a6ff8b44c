package bloomgate_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"bloomgate.invalid/bloomgate"
	"github.com/redis/go-redis/v9"
)

// process returns a process of the case, which has a client of its own.
func (r *run) process(name string) *process {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.processes[name] == nil {
		r.processes[name] = r.newProcess()
	}
	return r.processes[name]
}

// newProcess makes the client and the objects of the case. The client has the retries of go-redis, and without delay.
func (r *run) newProcess() *process {
	limit, connections := patience, 100
	for name, value := range objectOf(r.of["client"]) {
		switch name {
		case "timeout_ms":
			limit = time.Duration(whole(value)) * time.Millisecond
		case "connections":
			connections = whole(value)
		default:
			panic(unknown("unknown option of the client: " + name))
		}
	}
	one := &process{}
	if len(r.addresses) == 1 {
		one.redis = redis.NewClient(&redis.Options{
			Addr: r.addresses[0], Protocol: r.protocol, ReadTimeout: limit, PoolSize: connections, MaxRetries: 3, MinRetryBackoff: -1,
		})
	} else {
		one.redis = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: r.addresses, Protocol: r.protocol, ReadTimeout: limit, MaxRetries: 3,
		})
	}
	one.client = bloomgate.New(one.redis)
	if of := objectOf(r.of["filter"]); of != nil {
		one.filter = bloomgate.NewFilter(one.client, of["key"].(string))
		if of["create"] == false {
			one.filter = one.filter.WithoutCreating()
		}
	}
	if of := objectOf(r.of["guard"]); of != nil {
		var codec bloomgate.Codec[any] = texts{}
		if one.isJSON = of["codec"] == "json"; one.isJSON {
			codec = bloomgate.JSON[any]()
		}
		one.guard = bloomgate.NewGuard(one.client, of["filter"].(string), codec, guardOptions(of)...)
	}
	return one
}

func objectOf(value any) object {
	found, _ := value.(object)
	return found
}

// texts is a codec of rows that are strings.
type texts struct{}

func (texts) Encode(row any) ([]byte, error) {
	if text, isText := row.(string); isText {
		return []byte(text), nil
	}
	return nil, fmt.Errorf("%v is no text", row)
}

func (texts) Decode(data []byte) (any, error) { return string(data), nil }

func guardOptions(of object) []bloomgate.Option {
	times := map[string]func(time.Duration) bloomgate.Option{
		"ttl": bloomgate.TTL, "absent_ttl": bloomgate.AbsentTTL, "lease": bloomgate.Lease, "wait": bloomgate.Wait,
		"fail_safe": bloomgate.FailSafe, "soft_timeout": bloomgate.SoftTimeout, "patience": bloomgate.Patience,
		"replicas_timeout": bloomgate.ReplicasTimeout,
	}
	var options []bloomgate.Option
	for name, value := range of {
		if option, isTime := times[strings.TrimSuffix(name, "_ms")]; isTime {
			options = append(options, option(timeOf(name, value)))
			continue
		}
		switch name {
		case "filter", "codec":
		case "attempts":
			options = append(options, bloomgate.Attempts(whole(value)))
		case "beta":
			beta, _ := value.(json.Number).Float64()
			options = append(options, bloomgate.Beta(beta))
		case "prefix":
			options = append(options, bloomgate.Prefix(value.(string)))
		case "announce_to":
			options = append(options, bloomgate.AnnounceTo(itemList(value)...))
		case "replicas":
			options = append(options, bloomgate.Replicas(whole(value)))
		case "aof":
			options = append(options, bloomgate.AOF())
		case "feed":
			options = append(options, bloomgate.Feed())
		default:
			panic(unknown("unknown option of a guard: " + name))
		}
	}
	return options
}

// timeOf returns a time of a case: in milliseconds if the name says so, in seconds otherwise.
func timeOf(name string, value any) time.Duration {
	number, err := value.(json.Number).Float64()
	if err != nil {
		panic(err)
	}
	if strings.HasSuffix(name, "_ms") {
		return time.Duration(number * float64(time.Millisecond))
	}
	return time.Duration(number * float64(time.Second))
}

// begin begins a call in a goroutine of its own.
func (r *run) begin(step object) *call {
	one := &call{name: step["call"].(string), arguments: objectOf(step["with"])}
	one.called, one.ended = make(chan *invocation, 100), make(chan struct{})
	one.ctx, one.cancel = context.WithCancel(background)
	of := r.process(textOf(step["process"], "A"))
	go func() {
		defer close(one.ended)
		defer func() { one.panicked = recover() }()
		one.result, one.err = r.perform(of, one)
	}()
	return one
}

// function is the function that an actor passes to a call.
func (c *call) function(ctx context.Context, ids []string) (any, error) {
	one := &invocation{ids: ids, outcome: make(chan outcome, 1)}
	c.called <- one
	select {
	case end := <-one.outcome:
		if end.fatal {
			panic(end.err)
		}
		return end.value, end.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// row returns the row that a case names.
func (p *process) row(value any) any {
	if of, isObject := value.(object); isObject && !p.isJSON {
		if digits, isHex := of["hex"]; isHex {
			return fromHex(digits)
		}
	}
	return value
}

func (r *run) perform(p *process, c *call) (any, error) {
	kind, method, _ := strings.Cut(c.name, ".")
	switch {
	case kind == "guard":
		return r.guardCall(p, c, method)
	case kind == "filter" && method != "":
		return r.filterCall(p, c, method)
	}
	switch c.name {
	case "plan":
		rate, capacity, options := reserveOptions(c.arguments, "items")
		plan, err := bloomgate.PlanFilter(c.ctx, p.client, rate, capacity, int64(whole(c.arguments["items"])), options)
		return r.planned(plan), err
	case "item_bytes":
		text, err := item(c.arguments["item"])
		return object{"hex": hex.EncodeToString([]byte(text))}, err
	case "cache_prefix":
		return result(bloomgate.CachePrefix(c.arguments["filter"].(string)))
	case "filling_name":
		return result(bloomgate.FillingName(c.arguments["filter"].(string)))
	case "fill_filter":
		rate, capacity, of := reserveOptions(c.arguments, "key", "ids", "replicas", "aof")
		options := bloomgate.FillOptions{FilterOptions: of, AOF: c.arguments["aof"] == true}
		if replicas, isGiven := c.arguments["replicas"]; isGiven {
			options.Replicas = whole(replicas)
		}
		ids := bloomgate.IDs(slices.Values(itemList(c.arguments["ids"])))
		number, err := bloomgate.FillFilter(c.ctx, p.client, c.arguments["key"].(string), ids, rate, capacity, options)
		return r.plain(number), err
	}
	panic(unknown("unknown call " + c.name))
}

func result(value any, err error) (any, error) { return value, err }

// reserveOptions returns the options of a filter that is created.
func reserveOptions(arguments object, others ...string) (rate float64, capacity int64, options bloomgate.FilterOptions) {
	for name, value := range arguments {
		switch name {
		case "rate":
			rate, _ = value.(json.Number).Float64()
		case "capacity":
			capacity = int64(whole(value))
		case "exist_ok":
			options.ExistOK = value == true
		case "seed":
			options.Seed = value.(json.Number).String()
		case "hash":
			options.Hash = value.(string)
		case "window":
			options.Window = int64(whole(value))
		case "expansion":
			expansion := whole(value)
			options.Expansion = &expansion
		case "nonscaling":
			options.Nonscaling = value == true
		case "sliding":
			options.Sliding = value == true
		case "counting":
			options.Counting = value == true
		default:
			if !slices.Contains(others, name) {
				panic(unknown("unknown option of a filter: " + name))
			}
		}
	}
	return rate, capacity, options
}

func (r *run) filterCall(p *process, c *call, method string) (any, error) {
	var text string
	var items []string
	var err error
	if of, isGiven := c.arguments["item"]; isGiven {
		text, err = item(of)
	} else if of, isGiven := c.arguments["items"]; isGiven {
		items, err = itemsOf(of)
	}
	if err != nil {
		return nil, err
	}
	var found any
	switch method {
	case "reserve":
		if _, isUnknown := c.arguments["wonder"]; isUnknown {
			return nil, errType
		}
		rate, capacity, options := reserveOptions(c.arguments)
		found, err = p.filter.Reserve(c.ctx, rate, capacity, options)
	case "add":
		found, err = p.filter.Add(c.ctx, text)
	case "exists":
		found, err = p.filter.Exists(c.ctx, text)
	case "delete":
		found, err = p.filter.Delete(c.ctx, text)
	case "add_many":
		found, err = p.filter.AddMany(c.ctx, items)
	case "exists_many":
		found, err = p.filter.ExistsMany(c.ctx, items)
	case "delete_many":
		found, err = p.filter.DeleteMany(c.ctx, items)
	case "count":
		found, err = p.filter.Count(c.ctx, text)
	case "card":
		found, err = p.filter.Card(c.ctx)
	case "clear":
		err = p.filter.Clear(c.ctx)
	case "drop":
		found, err = p.filter.Drop(c.ctx)
	case "info":
		info, failed := p.filter.Info(c.ctx)
		return r.plain(object{
			"capacity": info.Capacity, "size_bytes": info.SizeBytes, "layers": info.Layers, "items": info.Items, "expansion": info.Expansion,
		}), failed
	case "stats":
		stats, failed := p.filter.Stats(c.ctx)
		buckets := list{}
		for _, one := range stats.Buckets {
			buckets = append(buckets, object{"slot": one.Slot, "items": one.Items, "begin_ms": one.BeginMS, "end_ms": one.EndMS})
		}
		return r.plain(object{
			"kind": stats.Kind, "layout": stats.Layout, "hash": stats.Hash, "error_rate": stats.ErrorRate,
			"error_rate_now": stats.ErrorRateNow, "items": stats.Items, "items_estimated": stats.ItemsEstimated,
			"capacity": stats.Capacity, "size_bytes": stats.SizeBytes, "pending_bytes": stats.PendingBytes,
			"layers": layers(stats.Layers), "items_deleted": stats.ItemsDeleted, "room_for_deleted": stats.RoomForDeleted,
			"window_s": stats.WindowSeconds, "sliding": stats.Sliding, "buckets": buckets,
		}), failed
	default:
		panic(unknown("unknown call " + c.name))
	}
	return r.plain(found), err
}

func layers(of []bloomgate.Layer) list {
	found := list{}
	for _, one := range of {
		found = append(found, object{
			"capacity": one.Capacity, "size_bytes": one.SizeBytes, "hashes": one.Hashes, "items": one.Items, "fill": one.Fill,
		})
	}
	return found
}

func (r *run) planned(plan bloomgate.Plan) any {
	return r.plain(object{
		"kind": plan.Kind, "layout": plan.Layout, "hash": plan.Hash, "error_rate": plan.ErrorRate, "capacity": plan.Capacity,
		"size_bytes": plan.SizeBytes, "bits_per_item": plan.BitsPerItem, "layers": layers(plan.Layers),
	})
}

func (r *run) guardCall(p *process, c *call, method string) (any, error) {
	load := func(ctx context.Context) (*any, error) {
		value, err := c.function(ctx, nil)
		if err != nil || value == nil {
			return nil, err
		}
		row := p.row(value)
		return &row, nil
	}
	loadMany := func(ctx context.Context, ids []string) (map[string]any, error) {
		value, err := c.function(ctx, ids)
		rows := map[string]any{}
		for id, row := range objectOf(value) {
			rows[id] = p.row(row)
		}
		return rows, err
	}
	if method == "get" || method == "get_nested" {
		id, err := item(c.arguments["id"])
		if err != nil {
			return nil, err
		}
		if inner := load; method == "get_nested" {
			load = func(ctx context.Context) (*any, error) {
				row, found, err := p.guard.Get(ctx, id, inner)
				if err != nil || !found {
					return nil, err
				}
				return &row, nil
			}
		}
		var row any
		if ttl, isGiven := c.arguments["ttl"]; isGiven {
			row, _, err = p.guard.GetWithTTL(c.ctx, id, timeOf("ttl", ttl), load)
		} else {
			row, _, err = p.guard.Get(c.ctx, id, load)
		}
		return r.plain(row), err
	}
	ids, err := itemsOf(c.arguments["ids"])
	if err != nil {
		return nil, err
	}
	switch method {
	case "get_many":
		rows, err := p.guard.GetMany(c.ctx, ids, loadMany)
		found := list{}
		for i, id := range listOf(c.arguments["ids"]) {
			found = append(found, list{id, r.plain(rows[ids[i]])})
		}
		return found, err
	case "announce":
		return nil, p.guard.Announce(c.ctx, ids...)
	case "confirm":
		return nil, p.guard.Confirm(c.ctx, ids...)
	case "forget":
		return nil, p.guard.Forget(c.ctx, ids...)
	case "changed":
		return nil, p.guard.Changed(c.ctx, ids, func(ctx context.Context) error {
			_, err := c.function(ctx, nil)
			return err
		})
	}
	panic(unknown("unknown call " + c.name))
}
