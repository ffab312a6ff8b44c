package bloomgate_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func read(t *testing.T, path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks returns the lines of Go code on a page.
func blocks(t *testing.T, path string) []string {
	var found []string
	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, path), -1) {
		found = append(found, block[1])
	}
	if len(found) == 0 {
		t.Fatalf("%s has no lines of Go", path)
	}
	return found
}

// Follows the README in an empty module.
func TestTheReadmeWorksInAnEmptyModule(t *testing.T) {
	server := emptyServer(t)
	folder := t.TempDir()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	program := strings.ReplaceAll(blocks(t, "README.md")[0], "localhost:6379", server)
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	// The hashes are copied from this module, so that nothing is fetched.
	if err := os.WriteFile(filepath.Join(folder, "go.sum"), []byte(read(t, "go.sum")), 0o600); err != nil {
		t.Fatal(err)
	}
	command := func(words ...string) string {
		process := exec.Command("go", words...)
		process.Dir, process.Env = folder, append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off")
		output, err := process.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(words, " "), err, output)
		}
		return string(output)
	}
	command("mod", "init", "example")
	edit := regexp.MustCompile("(?m)^go (mod edit .*)$").FindStringSubmatch(read(t, "README.md"))
	command(strings.Fields(strings.ReplaceAll(edit[1], "CLONE/clients/go", here))...)
	found := command("run", ".")
	expected := "new: true <nil>\nbefore: Ann true <nil>\nchanged: <nil>\nafter: Anna true <nil>\n"
	if found != expected {
		t.Errorf("it prints %q", found)
	}
}

// The examples run here, and then as examples: data from the first run does not affect the output of the second.
func TestTheExamplesRunTwice(t *testing.T) {
	if _, module := programs(); module == "" {
		t.Skip("there is no server for the examples")
	}
	ExampleFilter()
	ExampleGuard()
}
