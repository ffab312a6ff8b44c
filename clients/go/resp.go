package bloomgate

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// go-redis stops reading a list at an error in it such as OOM, and leaves the rest on the connection. Some commands of the module answer each
// item with a value or an error, so their replies are parsed here.

// serverError is an error reply. go-redis treats it like its own errors, and follows redirections.
type serverError string

func (e serverError) Error() string { return string(e) }

// RedisError makes it a [redis.Error].
func (serverError) RedisError() {}

// refusal is the error of a server that is not the primary, or not ready. go-redis treats it as a connection error, and closes the
// connection: the next command may reach the new primary at the same address.
type refusal struct{ answer serverError }

func (r refusal) Error() string { return string(r.answer) }

var refusals = []string{"READONLY ", "MASTERDOWN ", "LOADING ", "CLUSTERDOWN "}

// replyBuffer receives the bytes of a reply from go-redis. It fails with an error reply, which becomes the error of the command.
type replyBuffer struct{ bytes.Buffer }

func (b *replyBuffer) Write(data []byte) (int, error) {
	if b.Len() == 0 && len(data) > 0 && data[0] == '-' {
		answer := serverError(data[1:])
		if slices.ContainsFunc(refusals, func(beginning string) bool { return strings.HasPrefix(string(answer), beginning) }) {
			return 0, refusal{answer}
		}
		return 0, answer
	}
	return b.Buffer.Write(data)
}

// spareBytes is the largest size of a buffer that is reused.
const spareBytes = 1 << 14

var spareBuffers = sync.Pool{New: func() any { return &replyBuffer{} }}

func takeBuffer() *replyBuffer { return spareBuffers.Get().(*replyBuffer) }

// free returns an unused buffer to the pool.
func (b *replyBuffer) free() {
	if b.Cap() <= spareBytes {
		b.Reset()
		spareBuffers.Put(b)
	}
}

// parseReply reads one reply: a string, an int64, a float64, a bool, nil, a list, or an error. Maps become lists of names and values,
// as in RESP2.
func parseReply(data []byte) (value any, rest []byte, err error) {
	line, rest, isWhole := bytes.Cut(data, []byte("\r\n"))
	if !isWhole || len(line) == 0 {
		return nil, nil, unexpected(string(data))
	}
	text := string(line[1:])
	switch line[0] {
	case '+', '(':
		return text, rest, nil
	case '-':
		return serverError(text), rest, nil
	case ':':
		number, err := strconv.ParseInt(text, 10, 64)
		return number, rest, err
	case ',':
		number, err := strconv.ParseFloat(text, 64)
		return number, rest, err
	case '#':
		return text == "t", rest, nil
	case '_':
		return nil, rest, nil
	}
	count, err := strconv.Atoi(text)
	if err != nil || count < 0 {
		return nil, rest, err
	}
	switch line[0] {
	case '$', '=', '!':
		if len(rest) < count+2 {
			return nil, nil, fmt.Errorf("a reply ends after %d of %d bytes", len(rest), count)
		}
		text, rest := string(rest[:count]), rest[count+2:]
		switch {
		case line[0] == '!':
			return serverError(text), rest, nil
		case line[0] == '=' && count >= 4:
			text = text[4:]
		}
		return text, rest, nil
	case '%':
		count *= 2
	case '*', '~', '>':
	default:
		return nil, nil, unexpected(string(line))
	}
	list := make([]any, count)
	for i := range list {
		if list[i], rest, err = parseReply(rest); err != nil {
			return nil, nil, err
		}
	}
	return list, rest, nil
}
