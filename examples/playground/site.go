package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-go/sluice/examples/playground/engine"
)

//go:embed site
var site embed.FS

// A file is one of those that a browser loads.
type file struct {
	name    string
	content []byte
}

// policy is the Content-Security-Policy, which index.html has as well, for other servers.
const policy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'"

// pages returns all files. The engine is compressed by gzip; wasm_exec.js, which starts
// it, belongs to the Go that has compiled it.
func pages(e compiled) ([]file, error) {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(e.wasm); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	stories, err := json.Marshal(engine.Stories())
	if err != nil {
		return nil, err
	}
	files := []file{{"engine.wasm.gz", packed.Bytes()}, {"stories.json", stories}, {"wasm_exec.js", e.start}}
	entries, err := site.ReadDir("site")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		content, err := site.ReadFile(path.Join("site", entry.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, file{entry.Name(), content})
	}
	return files, nil
}

// handler serves the files.
func handler(files []file) http.Handler {
	mux := http.NewServeMux()
	for _, f := range files {
		pattern := "GET /" + f.name
		if f.name == "index.html" {
			pattern = "GET /{$}"
		}
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("Content-Security-Policy", policy+"; frame-ancestors 'none'")
			h.Set("X-Content-Type-Options", "nosniff")
			h.Set("Referrer-Policy", "no-referrer")
			h.Set("Cache-Control", "no-cache")
			if strings.HasSuffix(f.name, ".gz") {
				h.Set("Content-Type", "application/gzip")
			}
			http.ServeContent(w, r, f.name, time.Time{}, bytes.NewReader(f.content))
		})
	}
	return mux
}

// compiled is the engine for the browser, and the file of the Go distribution that
// starts it.
type compiled struct {
	wasm, start []byte
}

// enginePackage is what is compiled.
const enginePackage = "github.com/sluice-go/sluice/examples/playground/wasm"

// compile compiles the engine. The build cache of Go makes the second time quick.
func compile(ctx context.Context) (compiled, error) {
	dir, err := os.MkdirTemp("", "playground")
	if err != nil {
		return compiled{}, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "engine.wasm")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, enginePackage)
	build.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	if said, err := build.CombinedOutput(); err != nil {
		return compiled{}, fmt.Errorf("go build: %w, which works in a clone of Sluice only\n%s", err, said)
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return compiled{}, fmt.Errorf("go env GOROOT: %w", err)
	}
	var c compiled
	if c.wasm, err = os.ReadFile(out); err != nil {
		return compiled{}, err
	}
	c.start, err = os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "lib", "wasm", "wasm_exec.js"))
	return c, err
}
