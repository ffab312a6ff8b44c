package bloomgate_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience is the limit of every wait, far longer than a slow machine needs.
const patience = time.Minute

// realServer is a server with the module, in its own folder.
type realServer struct {
	process *exec.Cmd
	folder  string
	address string
}

// started are the servers that TestMain ends.
var started struct {
	mutex   sync.Mutex
	servers []*realServer
}

// TestMain starts a separate server for the examples, which are skipped if there is no server program.
func TestMain(m *testing.M) {
	flag.Parse()
	if program, module := programs(); module == "" {
		_ = flag.Set("test.skip", "^Example")
	} else if server, err := tryServer(program, module, nil); err != nil {
		panic(err)
	} else {
		address = server.address
	}
	status := m.Run()
	for _, server := range started.servers {
		server.end()
	}
	for begun := time.Now(); status == 0 && goroutines() != ""; time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > patience {
			fmt.Printf("FAIL: goroutines of the package are left after all clients were closed:\n%s\n", goroutines())
			status = 1
		}
	}
	os.Exit(status)
}

// goroutines returns the stacks of the goroutines that run code of the package.
func goroutines() string {
	stacks := make([]byte, 1<<22)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var found []string
	for _, one := range strings.Split(string(stacks), "\n\n") {
		if strings.Contains(one, "bloomgate.invalid/bloomgate.") {
			found = append(found, one)
		}
	}
	return strings.Join(found, "\n\n")
}

// programs returns the paths of a server and of the module, or nothing.
func programs() (program, module string) {
	program, err := exec.LookPath(cmp.Or(os.Getenv("BLOOMGATE_SERVER"), "redis-server"))
	if err == nil {
		module, err = filepath.Abs(cmp.Or(os.Getenv("BLOOMGATE_MODULE"), "../../target/release/libbloomgate.so"))
	}
	if err == nil {
		_, err = os.Stat(module)
	}
	if err != nil {
		return "", ""
	}
	return program, module
}

// startServer starts a server with additional lines of configuration. The test is skipped without a server or a module.
func startServer(t testing.TB, lines ...string) *realServer {
	t.Helper()
	program, module := programs()
	if module == "" {
		t.Skip("there is no server (BLOOMGATE_SERVER, or redis-server on the PATH), or no module (BLOOMGATE_MODULE)")
	}
	server, err := tryServer(program, module, lines)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// tryServer starts a server. Another program may take its port first, so it tries a few times.
func tryServer(program, module string, lines []string) (*realServer, error) {
	var failed error
	for range 5 {
		server, err := runServer(program, module, lines)
		if err == nil {
			started.mutex.Lock()
			defer started.mutex.Unlock()
			started.servers = append(started.servers, server)
			return server, nil
		}
		failed = err
	}
	return nil, failed
}

func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = listener.Close() }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, err
}

func runServer(program, module string, lines []string) (*realServer, error) {
	folder, err := os.MkdirTemp("", "bloomgate-go-")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	lines = append(slices.Clone(lines), "port "+port, "bind 127.0.0.1", "dir "+folder, `save ""`, "loadmodule "+module)
	configuration := filepath.Join(folder, "redis.conf")
	if err := os.WriteFile(configuration, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return nil, err
	}
	server := &realServer{exec.Command(program, configuration), folder, "127.0.0.1:" + port}
	if err := server.process.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.process.Wait() }()
	client := redis.NewClient(&redis.Options{Addr: server.address})
	defer func() { _ = client.Close() }()
	for begun := time.Now(); time.Since(begun) < patience; {
		select {
		case err := <-ended:
			server.end()
			return nil, fmt.Errorf("%s has ended: %w", program, err)
		case <-time.After(20 * time.Millisecond):
		}
		if client.Ping(background).Err() == nil {
			return server, nil
		}
	}
	server.end()
	return nil, fmt.Errorf("%s does not answer", program)
}

func (s *realServer) end() {
	_ = s.process.Process.Kill()
	_ = os.RemoveAll(s.folder)
}

// oneServer is shared by all tests that do not stop or reconfigure it.
var oneServer *realServer

// emptyServer returns the address of a server without keys.
func emptyServer(t testing.TB) string {
	if oneServer == nil {
		oneServer = startServer(t)
	}
	address := oneServer.address
	client := redis.NewClient(&redis.Options{Addr: address})
	defer func() { _ = client.Close() }()
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return address
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, isSo func() bool) {
	t.Helper()
	for begun := time.Now(); !isSo(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatalf("%s: not after %v", what, patience)
		}
	}
}

var background = context.Background()

// farAway returns the address of a proxy that delays every command.
func farAway(t *testing.T, address string, longer time.Duration) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	forward := func(from, to net.Conn, longer time.Duration) {
		defer func() { _ = to.Close() }()
		data := make([]byte, 1<<20)
		for {
			count, err := from.Read(data)
			time.Sleep(longer)
			if err == nil {
				_, err = to.Write(data[:count])
			}
			if err != nil {
				return
			}
		}
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", address)
			if err != nil {
				_ = client.Close()
				return
			}
			go forward(client, server, longer)
			go forward(server, client, 0)
		}
	}()
	return listener.Addr().String()
}
