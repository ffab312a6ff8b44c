package bloomgate_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// arrival is a command that has arrived, and its reply once it is known.
type arrival struct {
	connection *connection
	words      []string
	reply      []byte
	waits      bool
}

func (a *arrival) String() string { return fmt.Sprintf("%.300q", strings.Join(a.words, " ")) }

// scriptedServer sends the replies of a case. arrived contains the commands of all connections, in the order of their arrival.
type scriptedServer struct {
	listener    net.Listener
	arrived     chan *arrival
	mutex       sync.Mutex
	connections []*connection
	violations  []string
	isClosed    bool
}

// connection is one connection of the client. Replies are sent in the order of the commands.
type connection struct {
	server     *scriptedServer
	peer       net.Conn
	mutex      sync.Mutex
	protocol   int
	unanswered []*arrival
}

func startScripted(t testing.TB) *scriptedServer {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &scriptedServer{listener: listener, arrived: make(chan *arrival, 1000)}
	go server.accept()
	t.Cleanup(server.close)
	return server
}

func (s *scriptedServer) accept() {
	for {
		peer, err := s.listener.Accept()
		if err != nil {
			return
		}
		one := &connection{server: s, peer: peer, protocol: 2}
		s.mutex.Lock()
		s.connections = append(s.connections, one)
		if s.isClosed {
			_ = peer.Close()
		}
		s.mutex.Unlock()
		go one.serve()
	}
}

func (s *scriptedServer) close() {
	_ = s.listener.Close()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.isClosed = true
	for _, one := range s.connections {
		_ = one.peer.Close()
	}
}

// automatic are commands that client libraries send by themselves, which cases do not mention.
var automatic = []string{"HELLO", "AUTH", "CLIENT", "SELECT", "READONLY", "COMMAND", "PING", "QUIT", "INFO"}

func (c *connection) serve() {
	reader := bufio.NewReader(c.peer)
	for {
		words, err := readCommand(reader)
		if err != nil {
			return
		}
		name := strings.ToUpper(words[0])
		isWait := func(word string) bool { return strings.EqualFold(word, "WAIT") }
		one := &arrival{connection: c, words: words, waits: name == "BF.FETCH" && slices.ContainsFunc(words[4:], isWait)}
		c.mutex.Lock()
		if slices.ContainsFunc(c.unanswered, func(earlier *arrival) bool { return earlier.waits }) {
			c.server.mutex.Lock()
			c.server.violations = append(c.server.violations, fmt.Sprintf("%v came behind an unanswered BF.FETCH with WAIT", one))
			c.server.mutex.Unlock()
		}
		c.unanswered = append(c.unanswered, one)
		c.mutex.Unlock()
		if slices.Contains(automatic, name) {
			c.answer(one, c.automatic(name, words))
		} else {
			c.server.arrived <- one
		}
	}
}

func readCommand(reader *bufio.Reader) ([]string, error) {
	number := func() (int, error) {
		line, err := reader.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	count, err := number()
	var words []string
	for range count {
		length, err := number()
		if err != nil {
			return nil, err
		}
		word := make([]byte, length+2)
		if _, err = io.ReadFull(reader, word); err != nil {
			return nil, err
		}
		words = append(words, string(word[:length]))
	}
	return words, err
}

func (c *connection) automatic(name string, words []string) []byte {
	switch name {
	case "HELLO":
		if len(words) > 1 {
			c.protocol, _ = strconv.Atoi(words[1])
		}
		hello := []any{
			"server", "redis", "version", "7.0.15", "proto", c.protocol, "id", 1,
			"mode", "standalone", "role", "master", "modules", []any{},
		}
		head := fmt.Sprintf("*%d\r\n", len(hello))
		if c.protocol == 3 {
			head = fmt.Sprintf("%%%d\r\n", len(hello)/2)
		}
		return append([]byte(head), bytes.SplitN(encode(hello, c.protocol), []byte("\r\n"), 2)[1]...)
	case "INFO":
		return encode("# Replication\r\nrole:master\r\nconnected_slaves:0\r\n", c.protocol)
	case "COMMAND":
		return encode([]any{}, c.protocol)
	case "PING":
		return []byte("+PONG\r\n")
	case "CLIENT":
		if strings.EqualFold(words[1], "MAINT_NOTIFICATIONS") {
			return []byte("-ERR unknown subcommand\r\n")
		}
		if strings.EqualFold(words[1], "ID") {
			return []byte(":1\r\n")
		}
	}
	return []byte("+OK\r\n")
}

// answer sends a reply once those before it are sent.
func (c *connection) answer(one *arrival, reply []byte) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	one.reply = reply
	for len(c.unanswered) > 0 && c.unanswered[0].reply != nil {
		_, _ = c.peer.Write(c.unanswered[0].reply) // The client may have closed the connection.
		c.unanswered = c.unanswered[1:]
	}
}

type list = []any

// simple is a simple string or an error, with its first character.
type simple string

// closed is the reply of a server that closes the connection.
const closed = simple("")

// encode returns the bytes of a reply in a protocol version.
func encode(reply any, protocol int) []byte {
	switch reply := reply.(type) {
	case nil:
		return []byte(map[int]string{2: "$-1\r\n", 3: "_\r\n"}[protocol])
	case bool:
		return []byte(map[bool][]string{false: {":0\r\n", "#f\r\n"}, true: {":1\r\n", "#t\r\n"}}[reply][protocol-2])
	case int:
		return fmt.Appendf(nil, ":%d\r\n", reply)
	case string:
		return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(reply), reply)
	case []any:
		encoded := fmt.Appendf(nil, "*%d\r\n", len(reply))
		for _, one := range reply {
			encoded = append(encoded, encode(one, protocol)...)
		}
		return encoded
	case simple:
		return []byte(reply + "\r\n")
	}
	panic(fmt.Sprintf("unknown reply %v", reply))
}
