package bloomgate

import (
	"errors"
	"fmt"
	"strings"
)

// The errors that a caller acts on, for [errors.Is]. Other errors come from go-redis or from functions of the caller.
var (
	// ErrFilterMissing: the key does not exist.
	ErrFilterMissing = errors.New("there is no such filter")
	// ErrFilterExists: the key exists already.
	ErrFilterExists = errors.New("the key exists already")
	// ErrFilterFull: a NONSCALING filter has reached its capacity. Items before the first Unknown of a command were added.
	ErrFilterFull = errors.New("the filter is full")
	// ErrFilterLoading: the filter is still being loaded: its last BF.LOADCHUNK has not arrived yet.
	ErrFilterLoading = errors.New("the filter is still being loaded")
	// ErrModuleMissing: the module is missing or older than this client, or another module provides BF.*.
	ErrModuleMissing = errors.New("the server has not loaded the module bloomgate")
	// ErrLoadFailed: the last load of a row failed elsewhere, and no value is cached: the row is not loaded again until the back-off ends.
	ErrLoadFailed = errors.New("the row has no cached value, and its last load failed")
	// ErrUnconfirmed: a write was committed, but its confirmation was not acknowledged in time. Readers may get the old rows for up to the
	// longest load and a time to live. The field IDs of the [Error] lists the rows; [Guard.Confirm] tries again.
	ErrUnconfirmed = errors.New("the change could not be confirmed")
	// ErrNotDurable: a write did not reach the required number of replicas, or the append-only file, in time.
	ErrNotDurable = errors.New("the write is not durable yet")
	// ErrRefused: the arguments or options are invalid, and nothing was sent; or the codec could not encode a row.
	ErrRefused = errors.New("refused")
	// ErrUnexpectedReply: the server sent a reply that this package does not understand.
	ErrUnexpectedReply = errors.New("unexpected reply")
)

// Answer is the answer for an item of a failed batch.
type Answer int8

// The answers.
const (
	Unknown Answer = iota
	No
	Yes
)

// Error is an error of this package with its details. [errors.Is] matches Kind and Err.
type Error struct {
	// Kind is one of the errors of this package, or nil.
	Kind error
	// Key is the filter's key, if any.
	Key string
	// Answers are the answers of a batch in the order of its items.
	Answers []Answer
	// IDs are the rows that could not be confirmed or loaded.
	IDs []string
	// Err is the cause, or nil: the error of the server, of the connection or of the codec.
	Err error
}

func (e *Error) Error() string {
	parts := []string{"bloomgate"}
	if e.Key != "" {
		parts = append(parts, fmt.Sprintf("%q", e.Key))
	}
	if len(e.IDs) > 0 {
		parts = append(parts, fmt.Sprintf("%.200q", e.IDs))
	}
	for _, err := range e.Unwrap() {
		parts = append(parts, err.Error())
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns Kind and Err, without nil.
func (e *Error) Unwrap() []error {
	var found []error
	for _, err := range []error{e.Kind, e.Err} {
		if err != nil {
			found = append(found, err)
		}
	}
	return found
}

func refused(format string, arguments ...any) error {
	return &Error{Kind: ErrRefused, Err: fmt.Errorf(format, arguments...)}
}

// named returns the error of a command about a filter, with the known answers of its batch.
func named(err error, key string, answers []Answer) error {
	var kind error
	text := strings.TrimPrefix(err.Error(), "ERR ")
	switch {
	case !isAnswer(err):
	case text == "not found":
		kind = ErrFilterMissing
	case text == "item exists":
		kind = ErrFilterExists
	case strings.Contains(text, "non scaling filter is full"):
		kind = ErrFilterFull
	case strings.Contains(text, "filter is still being loaded"):
		kind = ErrFilterLoading
	case isUnknownCommand(err):
		kind = ErrModuleMissing
	}
	return &Error{Kind: kind, Key: key, Answers: answers, Err: err}
}

// isUnknownCommand reports whether the server lacks a command of the module.
func isUnknownCommand(err error) bool {
	rest, found := strings.CutPrefix(err.Error(), "ERR unknown command")
	return found && strings.HasPrefix(strings.TrimLeft(rest, " '`"), "BF.")
}

// withoutModule returns the error of a guard's command. A module that rejects its options is older than this client.
func withoutModule(err error) error {
	if err == nil {
		return nil
	}
	if isUnknownCommand(err) {
		return &Error{Kind: ErrModuleMissing, Err: err}
	}
	if err.Error() == "ERR syntax error" {
		return &Error{Kind: ErrModuleMissing, Err: fmt.Errorf("the server's module is older than this client: %w", err)}
	}
	return err
}
