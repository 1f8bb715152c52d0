package holdfast_test

import (
	"archive/zip"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module, version = "holdfast.example/proto/clients/go", "v0.1.0"

// publish makes a module proxy of files, as the go command expects it.
func publish(t *testing.T) string {
	proxy := t.TempDir()
	folder := filepath.Join(proxy, module, "@v")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"list": version + "\n",
		version + ".info": `{"Version":"` + version + `"}`,
		version + ".mod":  string(mod)} {
		err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Create(filepath.Join(folder, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	archive := zip.NewWriter(file)
	defer archive.Close()
	err = filepath.WalkDir(".", func(path string, entry fs.DirEntry,
		err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			_, other := os.Stat(path + "/go.mod")
			if path != "." && other == nil { // another module
				return fs.SkipDir
			}
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		out, err := archive.Create(module + "@" + version + "/" + path)
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	})
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
