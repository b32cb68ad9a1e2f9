package proxy

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/internal/learned"
)

// The files of -state.
const (
	learnedFile = learned.File  // snapshots of gates
	keyFile     = "tenants.key" // with which credentials become names
	mostLearned = 10_000        // gates in learnedFile
)

// A memory keeps snapshots of gates over a restart: of all that need no published limits. Those are
// in the first response after a restart.
type memory struct {
	folder string // "" to keep it for this run only
	log    *slog.Logger

	mu      sync.Mutex
	gates   map[*sluice.Gate]string
	learned map[string][]byte // by the name of the gate, of gates that are not in use
	written string            // the content of the file
}

// newMemory reads the files of -state, and makes the directory if it does not exist.
func newMemory(folder string, log *slog.Logger) (*memory, error) {
	m := &memory{folder: folder, log: log, gates: make(map[*sluice.Gate]string), learned: make(map[string][]byte)}
	if folder == "" {
		return m, nil
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("-state: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(folder, learnedFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return m, nil
	case err != nil:
		return nil, fmt.Errorf("-state: %w", err)
	}
	gates, err := learned.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("-state: %s cannot be read; delete it, and limits are found again", filepath.Join(folder, learnedFile))
	}
	maps.Copy(m.learned, gates)
	m.written = string(text)
	return m, nil
}

// newGate makes the gate of a name, with the last snapshot for that name.
func (m *memory) newGate(name string, cfg sluice.Config) (*sluice.Gate, error) {
	cfg.Name = name
	gate, err := sluice.New(cfg)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if data := m.learned[name]; len(data) > 0 && gate.Restore(data) != nil {
		delete(m.learned, name) // it is of another version
	}
	m.gates[gate] = name
	return gate, nil
}

// forget takes leave of a gate. It is a KeyedConfig.Forget.
func (m *memory) forget(gate *sluice.Gate) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note(gate, m.gates[gate])
	delete(m.gates, gate)
	return true
}

// note takes a snapshot of a gate, if it has learned anything. m.mu is held.
func (m *memory) note(gate *sluice.Gate, name string) {
	if gate.Stats().Learned == nil {
		return
	}
	if _, known := m.learned[name]; known || len(m.learned) < mostLearned {
		m.learned[name] = gate.Snapshot()
	}
}

// noteAll takes snapshots of all gates.
func (m *memory) noteAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for gate, name := range m.gates {
		m.note(gate, name)
	}
}

// save writes the snapshots, if they have changed. A crash leaves the old file or the
// new one.
func (m *memory) save() error {
	if m.folder == "" {
		return nil
	}
	m.noteAll()
	m.mu.Lock()
	defer m.mu.Unlock()
	text, err := learned.Format(m.learned)
	if err != nil || string(text) == m.written {
		return err
	}
	if err := replaceFile(filepath.Join(m.folder, learnedFile), text); err != nil {
		return fmt.Errorf("-state: %w", err)
	}
	m.written = string(text)
	return nil
}

// replaceFile writes a file again, or leaves it as it is.
func replaceFile(name string, text []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// readKey reads the key of the installation from its file, or makes it.
func (t *tenants) readKey(folder string) error {
	if folder == "" {
		return nil
	}
	name := filepath.Join(folder, keyFile)
	text, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := replaceFile(name, t.key[:]); err != nil { // CreateTemp lets only the owner read it
			return fmt.Errorf("-state: %w", err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("-state: %w", err)
	case len(text) != len(t.key):
		return fmt.Errorf("-state: %s has %d bytes, want %d; delete it, and tenants get new names", name, len(text), len(t.key))
	}
	copy(t.key[:], text)
	return nil
}
