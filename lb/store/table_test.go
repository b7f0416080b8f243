package store

import (
	"maps"
	"math/rand/v2"
	"testing"
	"unsafe"
)

type word string

func (w *word) is(k string) bool { return string(*w) == k }

// Tables are compared with a map over many edits; every earlier table must stay
// as it was.
func TestTableAgainstMap(t *testing.T) {
	type version struct {
		table table[string, *word]
		want  map[string]*word
	}
	rng := rand.New(rand.NewPCG(1, 2))
	now := version{want: map[string]*word{}}
	var history []version
	for range 200 {
		e, want := now.table.edit(), maps.Clone(now.want)
		for range 1 + rng.IntN(100) {
			k := word([]byte{byte('a' + rng.IntN(26)), byte('a' + rng.IntN(26)), byte('a' + rng.IntN(2))})
			// Few hashes, so that entries collide in every way.
			hash := hashName(string(k)) & 0x3f_0000_00ff
			if rng.IntN(2) == 0 {
				e.put(hash, string(k), &k)
				want[string(k)] = &k
			} else {
				e.remove(hash, string(k))
				delete(want, string(k))
			}
		}
		history = append(history, now)
		now = version{e.table, want}
	}
	for i, v := range append(history, now) {
		got := map[string]*word{}
		for w := range v.table.all {
			got[string(*w)] = w
		}
		if !maps.Equal(got, v.want) {
			t.Fatalf("version %d: %d entries, want %d", i, len(got), len(v.want))
		}
		for k, w := range v.want {
			if found, ok := v.table.get(hashName(k)&0x3f_0000_00ff, k); !ok || found != w {
				t.Fatalf("version %d: get(%q) = %v, %v", i, k, found, ok)
			}
		}
		if _, ok := v.table.get(hashName("nobody"), "nobody"); ok {
			t.Fatal("found what was never put")
		}
	}
}

func TestEditSharesWhatItDoesNotTouch(t *testing.T) {
	var empty table[string, *word]
	e := empty.edit()
	for _, k := range []word{"a", "b", "c", "d", "e", "f", "g", "h"} {
		e.put(hashName(string(k)), string(k), &k)
	}
	before := e.table
	e = before.edit()
	k := word("z")
	e.put(hashName("z"), "z", &k)
	copied := 0
	for i := range before.shards {
		if len(e.shards[i]) > 0 && &e.shards[i][0] != unsafe.SliceData(before.shards[i]) {
			copied++
		}
	}
	if copied != 1 {
		t.Errorf("one entry copied %d shards", copied)
	}
}

func TestAllStops(t *testing.T) {
	var tab table[string, *word]
	e := tab.edit()
	for _, k := range []word{"a", "b", "c"} {
		e.put(hashName(string(k)), string(k), &k)
	}
	n := 0
	for range e.all {
		n++
		break
	}
	if n != 1 {
		t.Errorf("%d entries after a break", n)
	}
}
