package holdfast_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module, version = "holdfast.example/proto/clients/go", "v0.1.0"

// publish makes a module proxy of files, as `make clients` does.
func publish(t *testing.T) string {
	out, err := exec.Command("python3", "../packages.py",
		"go").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	proxy, err := filepath.Abs("../../../build/clients/go")
	if err != nil {
		t.Fatal(err)
	}
	return proxy
}

// TestPackage gets the module from a proxy, as a user does, and takes a lock.
func TestPackage(t *testing.T) {
	if address == "" {
		t.Skip("no holdfastd")
	}
	proxy, folder := publish(t), t.TempDir()
	program := `package main

import (
	"context"
	"fmt"

	holdfast "` + module + `"
)

func main() {
	c, err := holdfast.Dial(context.Background(), "` + address + `")
	if err != nil {
		panic(err)
	}
	defer c.Close()
	lock, err := c.Lock(context.Background(), "package")
	fmt.Print(err, lock.Fence() > 0)
}
`
	err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(program),
		0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mod", "init", "user"},
		{"get", module + "@" + version}, {"run", "."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "GOPROXY=file://"+proxy,
			"GONOSUMDB=*", "GOFLAGS=-modcacherw", "GOMODCACHE="+
				filepath.Join(folder, "cache"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		if args[0] == "run" && string(out) != "<nil> true" {
			t.Errorf("%s", out)
		}
	}
}
