package capture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/sysctl"
)

var confDir = sysctl.Path("net/ipv4/conf")

const (
	arpIgnore   = "arp_ignore"
	arpAnnounce = "arp_announce"

	ignoreScopeHost = 3 // "do not reply for local addresses configured with scope host"
	bestLocal       = 2 // "always use the best local address for this target"
)

// setting is a sysctl that was changed.
type setting struct {
	Key string `json:"key"` // below confDir: "all/arp_ignore"
	Was int    `json:"was"`
	Set int    `json:"set"`
}

// sysctls reads and writes below confDir, in the namespace of the calling thread.
type sysctls interface {
	devices() ([]string, error) // all and default among them
	read(key string) (int, error)
	write(key string, value int) error
}

// arpGuard keeps the kernel from answering ARP for, and from announcing, IPv4 addresses that are local by a route only.
// What it changed is in the file before it is changed.
type arpGuard struct {
	sys  sysctls
	file stateFile
}

// raise changes what has to be changed. It may be repeated, and then changes what has come undone. On an error nothing is
// left changed by this call.
func (g *arpGuard) raise() (err error) {
	plan, err := planARP(g.sys)
	if err != nil || len(plan) == 0 {
		return err
	}
	before, err := g.file.load()
	if err != nil {
		return err
	}
	if err := g.file.save(merge(before, plan)); err != nil {
		return err
	}
	var done []setting
	defer func() {
		if err == nil {
			return
		}
		for _, s := range slices.Backward(done) {
			err = errors.Join(err, g.sys.write(s.Key, s.Was))
		}
		err = errors.Join(err, g.file.save(before))
	}()
	for _, s := range plan {
		if err := g.sys.write(s.Key, s.Set); err != nil && !errors.Is(err, os.ErrNotExist) { // the device is gone
			return err
		}
		done = append(done, s)
	}
	return nil
}

// restore gives every sysctl its value from before, if it still has ours, and says what it did.
func (g *arpGuard) restore() (did []string, err error) {
	settings, err := g.file.load()
	if err != nil || len(settings) == 0 {
		return nil, err
	}
	var left []setting
	for _, s := range slices.Backward(settings) {
		now, readErr := g.sys.read(s.Key)
		switch {
		case errors.Is(readErr, os.ErrNotExist):
			continue // with its device
		case readErr == nil && now != s.Set:
			did = append(did, fmt.Sprintf("sysctl net.ipv4.conf.%s left at %d, which is not ours", dotted(s.Key), now))
			continue
		case readErr == nil:
			readErr = g.sys.write(s.Key, s.Was)
		}
		if readErr != nil {
			err = errors.Join(err, readErr)
			left = append(left, s)
			continue
		}
		did = append(did, fmt.Sprintf("sysctl net.ipv4.conf.%s restored to %d", dotted(s.Key), s.Was))
	}
	slices.Reverse(left)
	return did, errors.Join(err, g.file.save(left))
}

// planARP says what to change so that no device answers for or announces a VIP, those to come included.
func planARP(sys sysctls) ([]setting, error) {
	devices, err := sys.devices()
	if err != nil {
		return nil, fmt.Errorf("list devices with ARP settings: %w", err)
	}
	ignore, announce := make(map[string]int), make(map[string]int)
	for _, dev := range devices {
		for name, values := range map[string]map[string]int{arpIgnore: ignore, arpAnnounce: announce} {
			v, err := sys.read(dev + "/" + name)
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			values[dev] = v
		}
	}
	plan := planIgnore(ignore)
	if announce["all"] < bestLocal {
		plan = append(plan, setting{"all/" + arpAnnounce, announce["all"], bestLocal})
	}
	return plan, nil
}

// planIgnore: the kernel takes the greater of the values of all and of the device, and a new device gets that of default.
// Raising all to 3 does for every device, but takes a 1 or a 2 out of force; where there is one, the devices that have
// neither are raised one by one.
func planIgnore(values map[string]int) (plan []setting) {
	all := values["all"]
	if quiet(all) {
		return nil
	}
	stricter := false
	for _, v := range values {
		stricter = stricter || v == 1 || v == 2
	}
	if !stricter {
		return []setting{{"all/" + arpIgnore, all, ignoreScopeHost}}
	}
	for dev, v := range values {
		if dev != "all" && !quiet(v) {
			plan = append(plan, setting{dev + "/" + arpIgnore, v, ignoreScopeHost})
		}
	}
	slices.SortFunc(plan, func(a, b setting) int { return strings.Compare(a.Key, b.Key) })
	return plan
}

// quiet says whether an arp_ignore leaves addresses unanswered that are not configured: 1 and 2 (answer on the address's
// own device only), 3, and 8 (answer nothing). 4 to 7 are reserved and answer everything, like 0.
func quiet(v int) bool { return v >= 1 && v <= 3 || v == 8 }

// merge adds newer settings to older ones; the newer replaces the older of the same key.
func merge(older, newer []setting) []setting {
	all := slices.Clone(newer)
	for _, s := range older {
		if !slices.ContainsFunc(newer, func(n setting) bool { return n.Key == s.Key }) {
			all = append(all, s)
		}
	}
	return all
}

// dotted writes a key as sysctl(8) takes it; it wants slashes for dots within a device's name.
func dotted(key string) string {
	dev, name, _ := strings.Cut(key, "/")
	return strings.ReplaceAll(dev, ".", "/") + "." + name
}

// procSys is the kernel's sysctls, in a namespace.
type procSys struct{ ns *namespace }

var _ sysctls = procSys{}

func (p procSys) devices() (names []string, err error) {
	err = p.ns.do(func() error {
		entries, err := os.ReadDir(confDir)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return err
	})
	return names, err
}

func (p procSys) read(key string) (value int, err error) {
	err = p.ns.do(func() error {
		b, err := os.ReadFile(filepath.Join(confDir, key))
		if err != nil {
			return err
		}
		value, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err
	})
	return value, err
}

func (p procSys) write(key string, value int) error {
	return p.ns.do(func() error {
		f, err := os.OpenFile(filepath.Join(confDir, key), os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(strconv.Itoa(value))
			err = errors.Join(err, f.Close())
		}
		if errors.Is(err, unix.EROFS) {
			return fmt.Errorf("set sysctl net.ipv4.conf.%s=%d: %s is read-only: %w", dotted(key), value, sysctl.Path(""), err)
		}
		if err != nil {
			return fmt.Errorf("set sysctl net.ipv4.conf.%s=%d: %w", dotted(key), value, permission(err))
		}
		return nil
	})
}
