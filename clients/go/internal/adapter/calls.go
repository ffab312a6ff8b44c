package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"bloomgate.invalid/bloomgate"
	"github.com/redis/go-redis/v9"
)

// process is the state of one process of a case. Its guard is made by the first call that uses it.
type process struct {
	redis   redis.UniversalClient
	client  *bloomgate.Client
	filter  *bloomgate.Filter
	guardOf object
	mutex   sync.Mutex
	guard   *bloomgate.Guard[any]
}

func (p *process) isJSON() bool { return p.guardOf["codec"] == "json" }

// texts is a codec of rows that are strings.
type texts struct{}

func (texts) Encode(row any) ([]byte, error) {
	if text, isText := row.(string); isText {
		return []byte(text), nil
	}
	return nil, fmt.Errorf("%v is not a text", row)
}

func (texts) Decode(data []byte) (any, error) { return string(data), nil }

var guardOptions = map[string]any{
	"ttl": bloomgate.TTL, "absent_ttl": bloomgate.AbsentTTL, "lease_ms": bloomgate.Lease, "wait_ms": bloomgate.Wait,
	"fail_safe": bloomgate.FailSafe, "soft_timeout": bloomgate.SoftTimeout, "patience": bloomgate.Patience,
	"replicas_timeout_ms": bloomgate.ReplicasTimeout, "attempts": bloomgate.Attempts, "replicas": bloomgate.Replicas,
	"beta": bloomgate.Beta, "fresh_ms": bloomgate.Fresh, "prefix": bloomgate.Prefix, "announce_to": bloomgate.AnnounceTo, "aof": bloomgate.AOF, "feed": bloomgate.Feed,
}

func (p *process) theGuard() *bloomgate.Guard[any] {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.guard != nil {
		return p.guard
	}
	var options []bloomgate.Option
	for name, value := range p.guardOf {
		switch option := guardOptions[name].(type) {
		case func(time.Duration) bloomgate.Option:
			options = append(options, option(timeOf(name, value)))
		case func(int) bloomgate.Option:
			options = append(options, option(int(float(value))))
		case func(float64) bloomgate.Option:
			options = append(options, option(float(value)))
		case func(string) bloomgate.Option:
			options = append(options, option(value.(string)))
		case func(...string) bloomgate.Option:
			keys, _ := items(value)
			options = append(options, option(keys...))
		case func() bloomgate.Option:
			options = append(options, option())
		default:
			if name != "filter" && name != "codec" {
				panic(unknown("unknown option of a guard: " + name))
			}
		}
	}
	var codec bloomgate.Codec[any] = texts{}
	if p.isJSON() {
		codec = bloomgate.JSON[any]()
	}
	p.guard = bloomgate.NewGuard(p.client, p.guardOf["filter"].(string), codec, options...)
	return p.guard
}

func float(value any) float64 {
	number, err := value.(json.Number).Float64()
	if err != nil {
		panic(unknown(err.Error()))
	}
	return number
}

// timeOf returns a time of a case: in milliseconds if the name ends in that unit, in seconds otherwise.
func timeOf(name string, value any) time.Duration {
	if strings.HasSuffix(name, "_ms") {
		return time.Duration(float(value) * float64(time.Millisecond))
	}
	return time.Duration(float(value) * float64(time.Second))
}

// filterOptions returns a call's arguments except others, as options of a new filter.
func filterOptions(with object, others ...string) (options bloomgate.FilterOptions, err error) {
	chosen := object{}
	for name, value := range with {
		if name == "seed" {
			value = fmt.Sprint(value)
		}
		if !slices.Contains(append(others, "rate", "capacity"), name) {
			chosen[strings.ReplaceAll(name, "_", "")] = value
		}
	}
	text, _ := json.Marshal(chosen)
	decoder := json.NewDecoder(bytes.NewReader(text))
	if decoder.DisallowUnknownFields(); decoder.Decode(&options) != nil {
		return options, errType
	}
	return options, nil
}

func (p *process) perform(c *call) (any, error) {
	switch kind, method, isMethod := strings.Cut(c.Call, "."); {
	case !isMethod:
		return p.function(c)
	case kind == "guard":
		return p.guardCall(c, method)
	case kind == "filter":
		return p.filterCall(c, method)
	}
	panic(unknown("unknown call " + c.Call))
}

func (p *process) function(c *call) (any, error) {
	switch c.Call {
	case "item_bytes":
		text, err := item(c.With["item"])
		return object{"hex": hex.EncodeToString([]byte(text))}, err
	case "cache_prefix":
		return bloomgate.CachePrefix(c.With["filter"].(string))
	case "filling_name":
		return bloomgate.FillingName(c.With["filter"].(string))
	case "plan":
		options, err := filterOptions(c.With, "items")
		if err != nil {
			return nil, err
		}
		rate, capacity, items := float(c.With["rate"]), int64(float(c.With["capacity"])), int64(float(c.With["items"]))
		return bloomgate.PlanFilter(c.ctx, p.client, rate, capacity, items, options)
	case "fill_filter":
		of, err := filterOptions(c.With, "key", "ids", "replicas", "aof")
		ids, wrong := items(c.With["ids"])
		if err != nil || wrong != nil {
			return nil, errType
		}
		options := bloomgate.FillOptions{FilterOptions: of, AOF: c.With["aof"] == true}
		if replicas := c.With["replicas"]; replicas != nil {
			options.Replicas = int(float(replicas))
		}
		rate, capacity := float(c.With["rate"]), int64(float(c.With["capacity"]))
		return bloomgate.FillFilter(c.ctx, p.client, c.With["key"].(string), bloomgate.IDs(slices.Values(ids)), rate, capacity, options)
	}
	panic(unknown("unknown call " + c.Call))
}

// filterCall calls the filter's method with this name.
func (p *process) filterCall(c *call, method string) (any, error) {
	arguments := []reflect.Value{reflect.ValueOf(c.ctx)}
	if of, isGiven := c.With["item"]; isGiven {
		text, err := item(of)
		if err != nil {
			return nil, err
		}
		arguments = append(arguments, reflect.ValueOf(text))
	} else if of, isGiven := c.With["items"]; isGiven {
		texts, err := items(of)
		if err != nil {
			return nil, err
		}
		arguments = append(arguments, reflect.ValueOf(texts))
	} else if method == "reserve" {
		options, err := filterOptions(c.With)
		if err != nil {
			return nil, err
		}
		return p.filter.Reserve(c.ctx, float(c.With["rate"]), int64(float(c.With["capacity"])), options)
	}
	of := reflect.ValueOf(p.filter).MethodByName(camel(method))
	if !of.IsValid() {
		panic(unknown("unknown call " + c.Call))
	}
	results := of.Call(arguments)
	err, _ := results[len(results)-1].Interface().(error)
	if len(results) == 1 {
		return nil, err
	}
	return results[0].Interface(), err
}

func (p *process) guardCall(c *call, method string) (any, error) {
	guard := p.theGuard()
	load := func(ctx context.Context) (*any, error) {
		value, err := c.function(ctx, nil)
		if err != nil || value == nil {
			return nil, err
		}
		row := p.row(value)
		return &row, nil
	}
	if strings.HasPrefix(method, "get") && method != "get_many" {
		id, err := item(c.With["id"])
		if err != nil {
			return nil, err
		}
		if inner := load; method == "get_nested" {
			load = func(ctx context.Context) (*any, error) {
				row, found, err := guard.Get(ctx, id, inner)
				if err != nil || !found {
					return nil, err
				}
				return &row, nil
			}
		}
		var row any
		if method == "get_in_transaction" {
			row, _, err = guard.GetInTransaction(c.ctx, id, load)
		} else if ttl, isGiven := c.With["ttl"]; isGiven {
			row, _, err = guard.GetWithTTL(c.ctx, id, timeOf("ttl", ttl), load)
		} else {
			row, _, err = guard.Get(c.ctx, id, load)
		}
		return row, err
	}
	ids, err := items(c.With["ids"])
	if err != nil {
		return nil, err
	}
	switch method {
	case "get_many":
		return p.getMany(c, ids)
	case "announce":
		return nil, guard.Announce(c.ctx, ids...)
	case "confirm":
		return nil, guard.Confirm(c.ctx, ids...)
	case "forget":
		return nil, guard.Forget(c.ctx, ids...)
	case "changed":
		return nil, guard.Changed(c.ctx, ids, func(ctx context.Context) error {
			_, err := c.function(ctx, nil)
			return err
		})
	}
	panic(unknown("unknown call " + c.Call))
}

// getMany reports ids as the case writes them, because in Go all ids are strings.
func (p *process) getMany(c *call, ids []string) (any, error) {
	given := c.With["ids"].([]any)
	loadMany := func(ctx context.Context, wanted []string) (map[string]any, error) {
		var called []any
		for _, id := range wanted {
			called = append(called, given[slices.Index(ids, id)])
		}
		value, err := c.function(ctx, called)
		rows := map[string]any{}
		found, _ := value.(object)
		for id, row := range found {
			rows[id] = p.row(row)
		}
		return rows, err
	}
	rows, err := p.theGuard().GetMany(c.ctx, ids, loadMany)
	found := []any{}
	for i, id := range given {
		found = append(found, []any{id, plain(rows[ids[i]])})
	}
	return found, err
}

// row returns the row that a case names.
func (p *process) row(value any) any {
	if of, isObject := value.(object); isObject && !p.isJSON() && of["hex"] != nil {
		return fromHex(of["hex"])
	}
	return value
}

// errType is the error of a call that would not compile in Go.
var errType = fmt.Errorf("the compiler refuses it: %w", bloomgate.ErrRefused)

// item returns an item or an id. In Go it is a string: other types, and texts with an unpaired surrogate, do not exist.
func item(of any) (string, error) {
	switch of := of.(type) {
	case string:
		return of, nil
	case json.Number:
		number, err := of.Int64()
		return bloomgate.Int(number), err
	case object:
		for name, value := range of {
			switch name {
			case "hex":
				return fromHex(value), nil
			case "integer":
				number, _ := new(big.Int).SetString(value.(string), 10)
				return number.String(), nil
			case "boolean", "float", "null", "utf16":
				return "", errType
			}
		}
	}
	panic(unknown(fmt.Sprintf("unknown item %v", of)))
}

func items(of any) ([]string, error) {
	given, isList := of.([]any)
	if !isList {
		return nil, errType
	}
	var found []string
	for _, one := range given {
		text, err := item(one)
		if err != nil {
			return nil, err
		}
		found = append(found, text)
	}
	return found, nil
}

// plain converts a result to the JSON form of the cases: strings that are not UTF-8 become hexadecimal digits.
func plain(value any) any {
	if text, isText := value.(string); isText && !utf8.ValidString(text) {
		return object{"hex": hex.EncodeToString([]byte(text))}
	}
	return value
}

// camel converts a name of the cases to Go's spelling.
func camel(name string) string {
	var found strings.Builder
	for _, part := range strings.Split(name, "_") {
		found.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return found.String()
}
