package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/baton-lb/baton/internal/testnet"
)

// R1: a bad file is refused by file and line, in one line of the log; what runs
// goes on as it is, flows and all.
func TestBadReload(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		good := w.service(nil)
		b := start(t, w.Balancer, good)
		c, _ := w.named(t)
		for _, tc := range []struct{ file, want string }{
			{"services:\n  - name: [\n", ":3: not YAML"},
			{w.service([]string{"10.202.1.2"}), ":5: service web: backends[0]"},
			{w.service(nil, "helath: {}"), `:6: service web: unknown key`},
			{good + "  - name: other\n    frontends: [\"tcp://" + w.vip.String() + "\"]\n", ":7: frontend tcp://" + w.vip.String()},
			{w.service(nil, "balance: rr", "mode: fast"), "(and 1 more fault)"},
			{w.service(nil, "offload: {path: flowtable}"), "not built yet"},
		} {
			bad := b.logged("level=ERROR")
			b.configure(tc.file)
			eventually(t, "the fault is logged", func() error {
				if b.logged("level=ERROR") > bad {
					return nil
				}
				return errors.New(b.log.String())
			})
			lines := strings.Split(strings.TrimSpace(b.log.String()), "\n")
			if last := lines[len(lines)-1]; !hasAll(last, []string{b.config(), tc.want}) {
				t.Errorf("the log says\n\t%s\nwant %s%s", last, b.config(), tc.want)
			}
			if n := b.logged("level=ERROR"); n != bad+1 {
				t.Errorf("%d lines for one bad file", n-bad)
			}
			c.works(t)
			w.who(t)
		}
		if n := b.logged("configuration loaded"); n != 0 {
			t.Errorf("%d of the bad files were loaded", n)
		}
		b.reload(w.service(nil, "balance: random"))
		c.works(t)
		w.who(t)
		c.ends(t)
	})
}

// The file is read again when it is replaced, written in place, or when SIGHUP
// says so; an absent one changes nothing.
func TestReload(t *testing.T) {
	bothFamilies(t, 2, func(t *testing.T, w world) {
		w.serveNamed()
		only := func(i int) string { return w.service(w.without(1 - i)) }
		b := start(t, w.Balancer, only(0))
		c, _ := w.named(t)
		at := func(how string, i int) {
			t.Helper()
			eventually(t, how+": new flows go to the other backend", func() error {
				if name, err := w.Client.AskName(w.vip); err != nil || name != w.Backends[i].Name() {
					return fmt.Errorf("they go to %q, %w", name, err)
				}
				return nil
			})
			c.works(t)
		}
		b.configure(only(1))
		at("renamed", 1)
		text, err := os.ReadFile(b.config())
		if err != nil {
			t.Fatal(err)
		}
		text = []byte(strings.Replace(string(text), w.backend(1).String(), w.backend(0).String(), 1))
		if err := os.WriteFile(b.config(), text, 0o644); err != nil {
			t.Fatal(err)
		}
		at("written in place", 0)
		loads := b.logged("configuration loaded")
		b.signal(syscall.SIGHUP)
		eventually(t, "SIGHUP loads the file", func() error {
			if b.logged("configuration loaded") > loads {
				return nil
			}
			return errors.New(b.log.String())
		})
		at("SIGHUP", 0)
		if err := os.Remove(b.config()); err != nil {
			t.Fatal(err)
		}
		b.waitLog("no such file or directory")
		at("gone", 0)
		b.configure(only(1))
		at("back", 1)
		c.ends(t)
	})
}

// What fails at run time is that frontend's failure; everything else of the new
// file is in force, and the frontend serves as soon as it can.
func TestFailsAtRunTime(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil))
		c, _ := w.named(t)
		taken := netip.AddrPortFrom(w.addr(w.Balancer), 8000)
		holder := w.Balancer.Serve(8000, testnet.Sink)
		text := w.service(nil)
		for i, vip := range []netip.AddrPort{taken, w.otherVIP()} {
			text += fmt.Sprintf("  - name: s%d\n    frontends: [\"tcp://%s\"]\n    backends: [%q]\n", i, vip, w.backend(0))
		}
		b.reload(text)
		eventually(t, "the new VIP serves", func() error { _, err := w.Client.AskName(w.otherVIP()); return err })
		want := fmt.Sprintf("address is in use by e2e.test (pid %d)", os.Getpid())
		eventually(t, "the frontend is shown as failed", func() error {
			if st := b.frontend(taken); st.Status != "failed" || !strings.Contains(st.Reason, want) {
				return fmt.Errorf("it is %+v", st)
			}
			return nil
		})
		if n := b.logged("level=WARN msg=\"programming failed\""); n != 1 {
			t.Errorf("the failure is logged %d times:\n%s", n, b.log)
		}
		for _, fine := range []netip.AddrPort{w.vip, w.otherVIP()} {
			b.isReady(fine)
		}
		w.who(t)
		c.works(t)
		holder.Close()
		eventually(t, "the frontend serves once it can", func() error { _, err := w.Client.AskName(taken); return err })
		b.isReady(taken)
		c.ends(t)
	})
}

// isReady waits until a frontend is shown as ready.
func (b *baton) isReady(addr netip.AddrPort) {
	b.t.Helper()
	eventually(b.t, addr.String()+" is ready", func() error {
		if st := b.frontend(addr); st.Status != "ready" {
			return fmt.Errorf("it is %+v", st)
		}
		return nil
	})
}

// frontendRow is one frontend as `baton services -o json` shows it.
type frontendRow struct{ Frontend, Status, Reason string }

func (b *baton) frontend(addr netip.AddrPort) frontendRow {
	b.t.Helper()
	var list struct {
		Services []struct{ Frontends []frontendRow }
	}
	if err := b.get("/v1/services", &list); err != nil {
		b.t.Fatalf("list services: %v", err)
	}
	for _, s := range list.Services {
		for _, fe := range s.Frontends {
			if fe.Frontend == "tcp://"+addr.String() {
				return fe
			}
		}
	}
	b.t.Fatalf("frontend %s is not listed", addr)
	return frontendRow{}
}
