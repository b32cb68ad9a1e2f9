package keyed

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/built"
	"github.com/sluice-go/sluice/limits"
)

// In these tests a value is the time until which it must be kept.
func past(until, now time.Duration) bool { return until <= now }

func keep(until time.Duration) func(time.Duration, time.Duration) time.Duration {
	return func(time.Duration, time.Duration) time.Duration { return until }
}

// consistent checks everything the tables of m rely on.
func consistent[K, V comparable](t *testing.T, m *Map[K, V]) {
	t.Helper()
	count := consistentPart(t, &m.part)
	if m.texts != nil {
		count += consistentPart(t, m.texts)
	}
	if count != m.Len() {
		t.Fatalf("%d entries, Len() = %d", count, m.Len())
	}
}

// consistentPart returns how many entries there are in m.
func consistentPart[K, V comparable](t *testing.T, m *part[K, V]) (count int) {
	t.Helper()
	check := func(tab *table[K, V], b *bucket[K, V], i int, e entry[K, V]) {
		t.Helper()
		if h := m.hash(e.key); tab.bucket(h) != b || b.index(tag(h), e.key) != i {
			t.Fatalf("key %v is not found where it is", e.key)
		}
	}
	for s := range m.shards {
		tab := &m.shards[s].table
		count += int(tab.n)
		n := 0
		for k := range tab.size {
			b := tab.at(k)
			for i, tag := range b.tags[:slots] {
				if tag != 0 {
					n++
					check(tab, b, i, b.entries[i])
				} else if b.entries[i] != (entry[K, V]{}) || len(b.overflow) > 0 {
					t.Fatalf("shard %d, bucket %d: slot %d is empty, %d overflow", s, k, i, len(b.overflow))
				}
			}
			for i, e := range b.overflow[:cap(b.overflow)] {
				if i < len(b.overflow) {
					n++
					check(tab, b, slots+i, e)
				} else if len(b.overflow) == 0 || e != (entry[K, V]{}) {
					t.Fatalf("shard %d, bucket %d: memory of overflow is kept", s, k)
				}
			}
		}
		if n != int(tab.n) {
			t.Fatalf("shard %d: %d entries, said to be %d", s, n, tab.n)
		}
		if size := int(tab.size); size > n/leastPerBucket+1 || size < n/perBucket {
			t.Fatalf("shard %d: %d buckets for %d entries", s, size, n)
		}
		room := 0
		for c, chunk := range tab.chunks {
			if room += cap(chunk); cap(chunk) > 2*chunkLen || c+1 < len(tab.chunks) && len(chunk) != chunkLen {
				t.Fatalf("shard %d: chunk %d has %d of %d buckets", s, c, len(chunk), cap(chunk))
			}
		}
		for _, chunk := range tab.chunks[len(tab.chunks):cap(tab.chunks)] {
			if chunk != nil {
				t.Fatalf("shard %d: a chunk too many is kept", s)
			}
		}
		if room > 2*int(tab.size)+chunkLen/4 {
			t.Fatalf("shard %d: room for %d buckets, there are %d", s, room, tab.size)
		}
	}
	return count
}

// fnv1 is a hash that is the same in each run.
func fnv1(text string) (h uint64) {
	for i := range len(text) {
		h = h*1099511628211 ^ uint64(text[i])
	}
	return h
}

// FuzzMap compares histories with a Go map that evicts nothing. The hash is
// poor, so that tags collide and chains are long.
func FuzzMap(f *testing.F) {
	f.Add([]byte{0, 1, 9, 0, 2, 9, 3, 1, 0, 1, 0, 4, 5, 2, 2})
	f.Add([]byte("0123456789 the quick brown fox jumps over the lazy dog, 0123456789 and again"))
	many := make([]byte, 0, 1800)
	for i := range 600 {
		many = append(many, 0, byte(i), byte(i*7))
	}
	f.Add(many)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 3000 {
			t.Skip("long enough")
		}
		synctest.Test(t, func(t *testing.T) {
			runHistory(t, data, func(key int) int { return key })
			runHistory(t, data, text)
		})
	})
}

// text returns a text for each key: short ones, longer ones, and some that differ
// only in zeros at their end.
func text(key int) string {
	if n := key % 32; n > 12 {
		return strings.Repeat("\x00", n-12) // 1 to 19
	}
	return strconv.Itoa(key)
}

func runHistory[K comparable](t *testing.T, data []byte, name func(int) K) {
	next := func() int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b)
	}
	most := []int64{math.MaxInt32, 3, 40}[next()%3]
	spread := next()
	bits, tags := spread%9, uint64(spread>>4)
	m := New[K](most, past)
	poor := func(hash uint64) uint64 {
		h := hash * 0x9e3779b97f4a7c15 >> 32
		return h&1<<63 | h&tags<<52 | h>>(32-bits) // two shards, few different tags and buckets
	}
	m.hash = func(key K) uint64 { return poor(fnv1(fmt.Sprint(key))) }
	if m.texts != nil {
		m.texts.hash = func(key short) uint64 { return poor(fnv1(string(key[:]))) }
	}
	start := time.Now()
	model := map[K]time.Duration{}
	for len(data) > 0 {
		now := time.Since(start)
		op, number := next()%6, next()
		key := name(number)
		switch op {
		case 0, 1, 2:
			until := now + time.Duration(next()%64)
			stored := m.Len()
			err := m.Update(key, func(v, at time.Duration) time.Duration {
				if w := model[key]; at != now || v != w && (v != 0 || w > now) {
					t.Fatalf("Update(%v) at %d got %d at %d, the model has %d", key, now, v, at, w)
				}
				return until
			})
			switch {
			case err == nil:
				model[key] = until
			case !errors.Is(err, limits.ErrTooManyKeys) || model[key] > now || until <= now || stored < int(most):
				t.Fatalf("Update(%v): %v, with %d of %d keys", key, err, stored, most)
			}
		case 3:
			v, at := m.Get(key)
			if w := model[key]; at != now || v != w && (v != 0 || w > now) {
				t.Fatalf("Get(%v) = %d at %d, the model has %d at %d", key, v, at, w, now)
			}
		case 4:
			m.Delete(key)
			delete(model, key)
			if v, _ := m.Get(key); v != 0 {
				t.Fatalf("Get(%v) = %d after Delete", key, v)
			}
		case 5:
			time.Sleep(time.Duration(number))
		}
		live := 0
		for _, until := range model {
			if until > time.Since(start) {
				live++
			}
		}
		if n := m.Len(); n < live || int64(n) > most {
			t.Fatalf("Len() = %d, %d are live and %d allowed", n, live, most)
		}
	}
	consistent(t, m)
}

// A call examines a bucket for a new key, and another one or, if the key is
// rejected, as many as it takes to see a few entries. The fullest in these tests,
// which all hash alike, have two thirds more entries than slots.
const mostExamined = 1 + 12 + 12 + 8

// alike makes the hash of m the same in each run.
func alike[K int | uint32](m *Map[K, time.Duration]) *Map[K, time.Duration] {
	m.hash = func(key K) uint64 { return splitmix(uint64(key)) }
	return m
}

// examined counts how many entries each call looks at.
func examined(calls *int) func(time.Duration, time.Duration) bool {
	return func(until, now time.Duration) bool {
		*calls++
		return past(until, now)
	}
}

func TestMap_ForgetsInSmallSteps(t *testing.T) {
	const n = 20_000
	synctest.Test(t, func(t *testing.T) {
		var calls int
		m := alike(New[int](n+1, examined(&calls)))
		for key := range n {
			m.Update(key, keep(time.Second))
		}
		if m.Len() != n {
			t.Fatalf("%d keys, want %d", m.Len(), n)
		}
		time.Sleep(time.Second)
		worst, asked := 0, 0
		for ; m.Len() > 1 && asked < 2*n; asked++ {
			calls = 0
			m.Update(-1, keep(time.Hour)) // one key, in one shard, clears them all
			worst = max(worst, calls)
		}
		if m.Len() != 1 || worst > mostExamined {
			t.Errorf("%d keys after %d calls, at most %d examined in one", m.Len(), asked, worst)
		}
		consistent(t, m)
	})
}

// While there is nothing to forget, little is examined.
func TestMap_NothingToForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100 * seldom
		var calls int
		m := alike(New[int](n+1, examined(&calls)))
		for key := range n {
			m.Update(key, keep(time.Second))
		}
		calls = 0
		for key := range n {
			m.Update(key, keep(time.Second))
		}
		if calls > n/4 || calls == 0 {
			t.Errorf("%d calls examined %d", n, calls)
		}
	})
}

// What overflows is discarded as well, and comes back when there is room.
func TestMap_OverflowOfOneBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New[int](100, past)
		m.hash = func(int) uint64 { return 1 << 50 }
		for key := range 20 {
			until := time.Hour
			if key%3 == 1 || key > 16 {
				until = time.Second
			}
			m.Update(key, keep(until))
		}
		consistent(t, m)
		time.Sleep(time.Second)
		m.Update(100, keep(time.Hour))
		consistent(t, m)
		if m.Len() != 12 {
			t.Errorf("%d keys, want 12", m.Len())
		}
		for key := range 20 {
			m.Delete(key)
			consistent(t, m)
		}
		if v, _ := m.Get(100); v != time.Hour || m.Len() != 1 {
			t.Errorf("%d keys, the last one has %v", m.Len(), v)
		}
	})
}

// Texts that look alike when they are filled up are different keys, and what is
// stored of one is not the caller's.
func TestMap_ShortTexts(t *testing.T) {
	m := New[string](100, past)
	keys := []string{"", "\x00", "\x00\x00", "a", "a\x00", "\x00a", "exactly 15 long", "exactly 15 lon\x00",
		"exactly 16 long!", "exactly 15 lon\x0f", "15\x0f", "0123456789abcd\x0e", "0123456789abcd"}
	for i, key := range keys {
		m.Update(key, keep(time.Duration(i+1)*time.Hour))
	}
	for i, key := range keys {
		if v, _ := m.Get(key); v != time.Duration(i+1)*time.Hour {
			t.Errorf("Get(%q) = %v, want %d h", key, v, i+1)
		}
	}
	consistent(t, m)
	for i, key := range keys {
		m.Delete(key)
		if v, _ := m.Get(key); v != 0 || m.Len() != len(keys)-i-1 {
			t.Errorf("after Delete(%q) it has %v, %d keys are left", key, v, m.Len())
		}
	}
	if _, named := any(New[name](1, past)).(*Map[name, time.Duration]); !named || New[name](1, past).texts != nil {
		t.Error("a type of its own is stored as it is")
	}
}

type name string

// Calls with keys of one kind forget those of the other as well, and make room.
func TestMap_PartsForgetForEachOther(t *testing.T) {
	long := strings.Repeat("x", 16)
	for _, c := range []struct{ first, then string }{{"", long}, {long, ""}} {
		synctest.Test(t, func(t *testing.T) {
			const n = 1000
			m := New[string](n, past)
			for key := range n {
				m.Update(c.first+strconv.Itoa(key), keep(time.Second))
			}
			if err := m.Update(c.then, keep(time.Hour)); err != limits.ErrTooManyKeys {
				t.Errorf("a key too many: %v", err)
			}
			time.Sleep(time.Second)
			if err := m.Update(c.then, keep(time.Hour)); err != nil {
				t.Errorf("one more, while all others are idle: %v", err)
			}
			for range 4 * n {
				m.Update(c.then, keep(time.Hour))
			}
			if m.Len() != 1 {
				t.Errorf("%d keys, want 1", m.Len())
			}
			consistent(t, m)
		})
	}
}

func TestMap_RefusalsExamineLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		var calls int
		m := alike(New[int](n, examined(&calls)))
		for key := range n {
			if err := m.Update(key, keep(time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		for key := range 1000 {
			calls = 0
			if err := m.Update(n+key, keep(time.Second)); err != limits.ErrTooManyKeys || calls > mostExamined {
				t.Fatalf("one more: %v, %d examined", err, calls)
			}
		}
		if err := m.Update(n, keep(0)); err != nil {
			t.Errorf("an idle value of a new key needs no room: %v", err)
		}
		if err := m.Update(1, keep(2*time.Second)); err != nil {
			t.Errorf("an old key: %v", err)
		}
		time.Sleep(time.Second)
		refused := 0
		for m.Update(-1, keep(time.Hour)) != nil {
			refused++
		}
		if refused > 0 {
			t.Errorf("refused %d times although nearly all are idle", refused)
		}
	})
}

// A key that is not equal to itself cannot be found again, but it is discarded.
func TestMap_NaN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New[float64](100, past)
		for range 50 {
			m.Update(math.NaN(), keep(time.Second))
		}
		if m.Len() != 50 {
			t.Errorf("%d keys, want 50", m.Len())
		}
		time.Sleep(time.Second)
		for range 1000 {
			m.Update(1, keep(time.Hour))
		}
		if m.Len() != 1 {
			t.Errorf("%d keys, want 1", m.Len())
		}
	})
}

func TestMap_PanicsLeaveItUnlocked(t *testing.T) {
	m := New[any](10, past)
	for range 2 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			m.Update([]int{1}, keep(1))
		}()
		func() {
			defer func() {
				if recover() != "mine" {
					t.Error("the panic did not fly on")
				}
			}()
			m.Update("key", func(time.Duration, time.Duration) time.Duration { panic("mine") })
		}()
	}
	if v, _ := m.Get("key"); v != 0 || m.Len() != 0 {
		t.Errorf("%v is remembered", v)
	}
}

// Memory follows the number of keys up and down, and up again.
func TestMap_Memory(t *testing.T) {
	const n = 1 << 16
	type value struct{ a, b time.Duration }
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "tenant:" + strconv.Itoa(i)
	}
	var full bool
	m := New[string](n, func(v value, _ time.Duration) bool { return v.a == 0 || full })
	empty := heap()
	for range 2 {
		full = false
		for i, key := range keys {
			m.Update(key, func(value, time.Duration) value { return value{time.Duration(i + 1), 0} })
		}
		if m.Len() != n {
			t.Fatalf("%d keys, want %d", m.Len(), n)
		}
		perKey := float64(heap()-empty) / n
		t.Logf("%.1f B per key, the header of the string and 16 B of value included", perKey)
		if perKey > 64 {
			t.Errorf("%.1f B per key", perKey)
		}
		full = true
		for m.Len() > 0 {
			m.Update("", func(value, time.Duration) value { return value{} })
			m.room.tidy(1, 1, 0)
		}
		if left := heap() - empty; left > 1<<20 {
			t.Errorf("%d B are kept for no keys", left)
		}
		consistent(t, m)
	}
	runtime.KeepAlive(keys)
}

// A long history of a growing, changing and shrinking map, by a good hash and
// with tables of several chunks, next to a Go map. What a call does is counted.
func TestMap_LongHistory(t *testing.T) {
	built.SkipRaced(t)
	synctest.Test(t, func(t *testing.T) {
		const keys = 250_000
		var looked, hashed, worstLooked, worstHashed int
		m := alike(New[uint32](keys, examined(&looked)))
		hash := m.hash
		m.hash = func(key uint32) uint64 { hashed++; return hash(key) }
		start, model, random := time.Now(), map[uint32]time.Duration{}, rand.New(rand.NewPCG(1, 2))
		stages := []struct {
			steps int
			among uint32
			kept  time.Duration
		}{
			{150_000, keys, time.Hour}, // grows
			{200_000, keys, 10_000},    // most were deleted, or expire
			{200_000, 50, time.Hour},   // no call uses them
			{150_000, keys, time.Hour}, // and again
		}
		for _, stage := range stages {
			for range stage.steps {
				key := random.Uint32N(stage.among)
				now := time.Since(start)
				want := model[key]
				if v, _ := m.Get(key); v != want && (v != 0 || want > now) {
					t.Fatalf("Get(%d) = %d at %d, the model has %d", key, v, now, want)
				}
				looked, hashed = 0, 0
				if stage.kept < time.Hour && random.IntN(2) == 0 {
					m.Delete(key)
					delete(model, key)
				} else {
					model[key] = now + stage.kept
					m.Update(key, keep(now+stage.kept))
				}
				worstLooked, worstHashed = max(worstLooked, looked), max(worstHashed, hashed)
				time.Sleep(time.Nanosecond)
			}
			consistent(t, m)
			live := 0
			for _, until := range model {
				if until > time.Since(start) {
					live++
				}
			}
			t.Logf("%d keys, %d live, at most %d examined and %d hashed by a call", m.Len(), live, worstLooked, worstHashed)
			if worstLooked > mostExamined+12 || worstHashed > 40 {
				t.Errorf("at most %d were examined and %d hashed by a call", worstLooked, worstHashed)
			}
			if m.Len() < live {
				t.Errorf("%d keys of %d live ones", m.Len(), live)
			}
			if stage.kept == time.Hour {
				time.Sleep(time.Hour)
			}
		}
	})
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func TestStress_Map(t *testing.T) {
	const keys, each = 1000, 2000
	m := New[int](keys, func(v int, _ time.Duration) bool { return v == 0 })
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range each {
				key := (i*7 + g*131) % keys
				if err := m.Update(key, func(v int, _ time.Duration) int { return v + 1 }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	for key := range keys {
		v, _ := m.Get(key)
		sum += v
	}
	if sum != 8*each {
		t.Errorf("%d updates, want %d", sum, 8*each)
	}
	consistent(t, m)
}
