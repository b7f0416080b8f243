package bpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/baton-lb/baton/internal/testnet"
)

// twoMaps are the specs of a test's maps.
func twoMaps() map[string]*ebpf.MapSpec {
	return map[string]*ebpf.MapSpec{
		"one": {Name: "one", Type: ebpf.Hash, KeySize: 4, ValueSize: 8, MaxEntries: 16},
		"two": {Name: "two", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 2},
	}
}

func TestPinnedMaps(t *testing.T) {
	_, dir := mountForTest(t, testnet.New(t).Host("a"))
	maps, adopted, err := pinnedMaps(dir, twoMaps())
	if err != nil || adopted {
		t.Fatalf("at first: adopted %t, %v", adopted, err)
	}
	if err := maps["one"].Put(uint32(7), uint64(9)); err != nil {
		t.Fatal(err)
	}
	closeMaps(maps)
	specs := twoMaps()
	specs["one"].MaxEntries = 1024 // another capacity than what is there
	maps, adopted, err = pinnedMaps(dir, specs)
	if err != nil || !adopted {
		t.Fatalf("then: adopted %t, %v", adopted, err)
	}
	defer closeMaps(maps)
	var v uint64
	if err := maps["one"].Lookup(uint32(7), &v); err != nil || v != 9 {
		t.Errorf("kept %d, %v", v, err)
	}
	if got := specs["one"].MaxEntries; got != 16 {
		t.Errorf("the spec says %d entries, the map has 16", got)
	}
}

// TestPinnedMapsAfterCrash begins with what a crash can leave.
func TestPinnedMapsAfterCrash(t *testing.T) {
	_, dir := mountForTest(t, testnet.New(t).Host("a"))
	half := filepath.Join(dir, fmt.Sprint(pinsNew, flowsLayout))
	gone := filepath.Join(dir, "gone-7", pinsLinks)
	for _, d := range []string{filepath.Join(half, pinsLinks), gone, filepath.Join(gone, linkName(clsactMark, 4))} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m, err := ebpf.NewMap(twoMaps()["one"])
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Pin(filepath.Join(half, "one")); err != nil {
		t.Fatal(err)
	}
	maps, adopted, err := pinnedMaps(dir, twoMaps())
	if err != nil || adopted {
		t.Fatalf("adopted %t, %v", adopted, err)
	}
	closeMaps(maps)
	if names, err := pinnedNames(dir); err != nil || !slices.Equal(names, []string{filepath.Base(pinsDir(dir))}) {
		t.Errorf("there is %v, %v", names, err)
	}
}

// TestPinnedMapsOfAnotherVersion are left alone, and the error says what to do.
func TestPinnedMapsOfAnotherVersion(t *testing.T) {
	h := testnet.New(t).Host("a")
	for _, tc := range []struct {
		name string
		pin  func(t *testing.T, dir string)
		want string
	}{
		{"another layout", func(t *testing.T, dir string) {
			if err := os.Mkdir(filepath.Join(dir, "flows-999"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, "layout 999, this version has"},
		{"a map is missing", func(t *testing.T, dir string) {
			specs := twoMaps()
			delete(specs, "two")
			pinForTest(t, dir, specs)
		}, "map two is missing"},
		{"a map has another shape", func(t *testing.T, dir string) {
			specs := twoMaps()
			specs["one"].ValueSize = 16
			pinForTest(t, dir, specs)
		}, "map one: ValueSize: 16 changed to 8"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, dir := mountForTest(t, h)
			tc.pin(t, dir)
			before, _ := pinnedNames(dir)
			_, _, err := pinnedMaps(dir, twoMaps())
			if !errors.Is(err, ErrIncompatible) {
				t.Fatal(err)
			}
			for _, want := range []string{tc.want, "run the version that they belong to", "`baton cleanup`"} {
				if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%q does not say %q in one line", err, want)
				}
			}
			if after, _ := pinnedNames(dir); !slices.Equal(before, after) {
				t.Errorf("changed: %v, was %v", after, before)
			}
			if _, err := removePins(dir); err != nil {
				t.Error(err)
			}
			if left, _ := pinnedNames(dir); len(left) != 0 {
				t.Errorf("cleanup left %v", left)
			}
		})
	}
	t.Run("no bpffs", func(t *testing.T) {
		if _, _, err := pinnedMaps(t.TempDir(), twoMaps()); err == nil || !strings.Contains(err.Error(), "not on a bpffs") {
			t.Error(err)
		}
	})
}

func pinForTest(t *testing.T, dir string, specs map[string]*ebpf.MapSpec) {
	t.Helper()
	maps, _, err := pinnedMaps(dir, specs)
	if err != nil {
		t.Fatal(err)
	}
	closeMaps(maps)
}

func TestRemoveFlows(t *testing.T) {
	eachHow(t, func(t *testing.T, clsact bool) {
		star := testnet.NewStar(t, 0)
		h := star.Balancer
		_, dir := mountForTest(t, h)
		pinForTest(t, dir, twoMaps())
		d := openDevices(t, h, newCounted(t), linksDir(dir), clsact)
		if err := d.sync(); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if got := attached(t, h, "eth0"); len(got) == 0 {
			t.Fatal("nothing outlived Close")
		}
		for _, want := range [][]string{
			{"map one (Hash of 16)", "map two (Array of 2)"}, nil, // the second time there is nothing
		} {
			if want != nil && clsact {
				want = append(want, "filter at ingress of eth0", "filter at egress of eth0")
			} else if want != nil {
				index := indexOf(t, h, "eth0")
				want = append([]string{"program at egress of device " + strconv.Itoa(index), "program at ingress of device " + strconv.Itoa(index)}, want...)
			}
			h.Do(func() {
				did, err := RemoveFlows(dir)
				if err != nil || !slices.Equal(did, want) {
					t.Errorf("removed %q, %v, want %q", did, err, want)
				}
			})
		}
		if got := attached(t, h, "eth0"); len(got) != 0 {
			t.Errorf("still attached: %q", got)
		}
		if left, err := pinnedNames(dir); err != nil || len(left) != 0 {
			t.Errorf("left %v, %v", left, err)
		}
	})
}
