package bloomgate

import (
	"strconv"
)

// Info is a filter's capacity and contents.
type Info struct {
	Capacity int64
	// SizeBytes counts the filter's fields and bits.
	SizeBytes int64
	Layers    int64
	Items     int64
	// Expansion is nil if the filter does not grow.
	Expansion *int64
}

// Layer is one layer of a filter. In a plan it has no Items and no Fill.
type Layer struct {
	Capacity, SizeBytes, Hashes int64
	Items                       *int64
	// Fill is the share of its bits that are set.
	Fill *float64
}

// Bucket is one bucket of a filter that forgets; the server lists the oldest first.
type Bucket struct {
	Slot, Items int64
	// BeginMS and EndMS are milliseconds since 1970, nil in a filter with Rolling.
	BeginMS, EndMS *int64
}

// Stats is a filter's kind and fill.
type Stats struct {
	Kind, Layout, Hash string
	ErrorRate          float64
	// ErrorRateNow is the estimated share of absent items that are found.
	ErrorRateNow                 float64
	Items, ItemsEstimated        int64
	Capacity, SizeBytes          int64
	PendingBytes                 int64
	Layers                       []Layer
	ItemsDeleted, RoomForDeleted *int64
	WindowSeconds                *int64
	Sliding                      bool
	Buckets                      []Bucket
}

// Plan is the size of a filter that does not exist yet.
type Plan struct {
	Kind, Layout, Hash  string
	ErrorRate           float64
	Capacity, SizeBytes int64
	BitsPerItem         float64
	Layers              []Layer
}

func toBool(value any) (bool, error) {
	switch value := value.(type) {
	case bool:
		return value, nil
	case int64:
		return value != 0, nil
	}
	return false, unexpected(value)
}

func toInt(value any) (int64, error) {
	if number, isInt := value.(int64); isInt {
		return number, nil
	}
	return 0, unexpected(value)
}

// fields are a reply's fields by name. In RESP2, floating-point numbers are strings. err is set by the first field that is missing or has
// another type.
type fields struct {
	values map[string]any
	err    error
}

func fieldsOf(reply any) *fields {
	found := &fields{values: map[string]any{}}
	list, isList := reply.([]any)
	if !isList {
		found.err = unexpected(reply)
	}
	for i := 0; i+1 < len(list); i += 2 {
		if name, isText := list[i].(string); isText {
			found.values[name] = list[i+1]
		}
	}
	return found
}

// read reads a reply by its fields.
func read[T any](value any, err error, parse func(*fields) T) (result T, _ error) {
	if err != nil {
		return result, err
	}
	found := fieldsOf(value)
	if result = parse(found); found.err != nil {
		var none T
		return none, found.err
	}
	return result, nil
}

// optional returns a field, or nil if it is missing or null.
func optional[T any](f *fields, name string) *T {
	value, isThere := f.values[name]
	if !isThere || value == nil {
		return nil
	}
	if text, isText := value.(string); isText {
		if number, err := strconv.ParseFloat(text, 64); err == nil {
			if _, isFloat := any(*new(T)).(float64); isFloat {
				value = number
			}
		}
	}
	found, isRight := value.(T)
	if !isRight {
		f.err = unexpected(value)
	}
	return &found
}

// required returns a field.
func required[T any](f *fields, name string) (found T) {
	if value := optional[T](f, name); value != nil {
		return *value
	}
	f.err = unexpected("a reply without " + name)
	return found
}

// parts returns a list of further replies with fields.
func parts[T any](f *fields, name string, parse func(*fields) T) []T {
	found := []T{}
	if list := optional[[]any](f, name); list != nil {
		for _, one := range *list {
			part := fieldsOf(one)
			found = append(found, parse(part))
			if part.err != nil {
				f.err = part.err
			}
		}
	}
	return found
}

func (f *fields) info() Info {
	return Info{
		Capacity:  required[int64](f, "Capacity"),
		SizeBytes: required[int64](f, "Size"),
		Layers:    required[int64](f, "Number of filters"),
		Items:     required[int64](f, "Number of items inserted"),
		Expansion: optional[int64](f, "Expansion rate"),
	}
}

func (f *fields) layer() Layer {
	return Layer{
		Capacity:  required[int64](f, "Capacity"),
		SizeBytes: required[int64](f, "Size"),
		Hashes:    required[int64](f, "Hashes"),
		Items:     optional[int64](f, "Number of items inserted"),
		Fill:      optional[float64](f, "Fill"),
	}
}

func (f *fields) bucket() Bucket {
	return Bucket{
		Slot:    required[int64](f, "Slot"),
		Items:   required[int64](f, "Number of items inserted"),
		BeginMS: optional[int64](f, "Begin"),
		EndMS:   optional[int64](f, "End"),
	}
}

func (f *fields) stats() Stats {
	isSliding := false
	if value := f.values["Sliding"]; value != nil {
		isSliding, f.err = toBool(value)
	}
	return Stats{
		Kind:           required[string](f, "Kind"),
		Layout:         required[string](f, "Layout"),
		Hash:           required[string](f, "Hash"),
		ErrorRate:      required[float64](f, "Error rate"),
		ErrorRateNow:   required[float64](f, "Error rate now"),
		Items:          required[int64](f, "Number of items inserted"),
		ItemsEstimated: required[int64](f, "Number of items estimated"),
		Capacity:       required[int64](f, "Capacity"),
		SizeBytes:      required[int64](f, "Size"),
		PendingBytes:   required[int64](f, "Size of pending adds"),
		Layers:         parts(f, "Layers", (*fields).layer),
		ItemsDeleted:   optional[int64](f, "Number of items deleted"),
		RoomForDeleted: optional[int64](f, "Room for items deleted"),
		WindowSeconds:  optional[int64](f, "Window"),
		Sliding:        isSliding,
		Buckets:        parts(f, "Buckets", (*fields).bucket),
	}
}

func (f *fields) plan() Plan {
	return Plan{
		Kind:        required[string](f, "Kind"),
		Layout:      required[string](f, "Layout"),
		Hash:        required[string](f, "Hash"),
		ErrorRate:   required[float64](f, "Error rate"),
		Capacity:    required[int64](f, "Capacity"),
		SizeBytes:   required[int64](f, "Size"),
		BitsPerItem: required[float64](f, "Bits per item"),
		Layers:      parts(f, "Layers", (*fields).layer),
	}
}
