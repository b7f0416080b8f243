package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

// Answer says what answers at a frontend.
type Answer uint32

// The answers.
const (
	AnswerOwn    = Answer(guardAnswerANSWER_OWN)    // the socket that is bound to the frontend's address and port
	AnswerShared = Answer(guardAnswerANSWER_SHARED) // the shared socket of its protocol and family: see Guard.Share
	AnswerSilent = Answer(guardAnswerANSWER_SILENT) // nothing, not even a refusal
	AnswerRefuse = Answer(guardAnswerANSWER_REFUSE) // a refusal, as at a closed port
)

// Rule says what answers at a frontend, by who asks.
type Rule struct {
	All     Answer
	Inside  Answer // for clients in Sources.Inside
	Sources Sources
}

// GuardUpdate changes what a guard does. Frontends need not be at VIPs that are protected: an answer holds at any address.
// One at the wildcard address (0.0.0.0, ::) holds at every address of its family, but for those with an answer of their own
// at that port, and those that are protected.
type GuardUpdate struct {
	Protect   []netip.Addr            // from now on these addresses refuse every port that is no frontend
	Rules     map[lb.FrontendKey]Rule // what is said of a frontend replaces what was said before
	Forget    []lb.FrontendKey
	Unprotect []netip.Addr
}

// Update applies the changes in the order of the fields, so that nothing is open in between which is closed before and
// after. Each may be repeated; forgetting what is not known is fine. After an error some of them have been made, and all
// should be tried again. Frontends of other protocols than TCP and UDP are passed over: the kernel asks nobody about them.
func (g *Guard) Update(u GuardUpdate) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrClosed
	}
	if err := g.putLocked(u.Protect, u.Rules); err != nil {
		return fmt.Errorf("update guard: %w", err)
	}
	for _, k := range u.Forget {
		if err := g.forgetLocked(frontendKey(k)); err != nil {
			return fmt.Errorf("update guard: forget %s: %w", k, err)
		}
	}
	for _, a := range u.Unprotect {
		if err := forget(g.objects.GuardVips, addressKey(a)); err != nil {
			return fmt.Errorf("update guard: unprotect %s: %w", a, err)
		}
	}
	return nil
}

// putLocked adds to the tables, and makes them larger when they are full.
func (g *Guard) putLocked(vips []netip.Addr, rules map[lb.FrontendKey]Rule) error {
	vipKeys := make([]guardAddress, len(vips))
	for i, a := range vips {
		vipKeys[i] = addressKey(a)
	}
	keys, values := make([]guardFrontend, 0, len(rules)), make([]guardRule, 0, len(rules))
	sets := make([]*sourceSet, 0, len(rules))
	for k, r := range rules {
		if k.Proto != flow.TCP && k.Proto != flow.UDP {
			continue
		}
		set, err := g.sets.get(g.objects.GuardSources, r.Sources)
		if err != nil {
			return err
		}
		keys, values, sets = append(keys, frontendKey(k)), append(values, ruleValue(r, set)), append(sets, set)
	}
	try := func() error {
		if err := put(g.objects.GuardVips, vipKeys, make([]uint8, len(vips))); err != nil {
			return err
		}
		return put(g.objects.GuardFrontends, keys, values)
	}
	err := try()
	if errors.Is(err, unix.E2BIG) {
		if err = g.growLocked(max(len(vips), len(rules))); err == nil {
			err = try()
		}
	}
	if err != nil {
		// Some frontends may have their new set by now: none goes, of either.
		for _, set := range sets {
			if set != nil {
				set.users++
			}
		}
		return err
	}
	for i, k := range keys {
		if err := g.sets.use(g.objects.GuardSources, k, sets[i]); err != nil {
			return err
		}
	}
	return nil
}

func ruleValue(r Rule, set *sourceSet) guardRule {
	v := guardRule{All: guardAnswer(r.All), Inside: guardAnswer(r.Inside)}
	if set != nil {
		v.Sources = set.number
	}
	return v
}

func (g *Guard) forgetLocked(k guardFrontend) error {
	if err := forget(g.objects.GuardFrontends, k); err != nil {
		return err
	}
	return g.sets.use(g.objects.GuardSources, k, nil)
}

// put adds or replaces entries, in one call.
func put[K, V any](m *ebpf.Map, keys []K, values []V) error {
	if len(keys) == 0 {
		return nil
	}
	_, err := m.BatchUpdate(keys, values, nil)
	return err
}

func forget[K any](m *ebpf.Map, key K) error {
	if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

// growLocked makes room for more entries: a program with larger tables is built aside, filled with what there is, and put
// in the place of the one that is attached, all at once.
func (g *Guard) growLocked(more int) (err error) {
	capacity := 2*g.capacity + more
	next, err := loadGuardTables(capacity, &g.objects)
	if err != nil {
		return fmt.Errorf("make larger tables: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, next.Close())
		}
	}()
	if err := copyEntries[guardFrontend, guardRule](next.GuardFrontends, g.objects.GuardFrontends, g.capacity); err != nil {
		return err
	}
	if err := copyEntries[guardAddress, uint8](next.GuardVips, g.objects.GuardVips, g.capacity); err != nil {
		return err
	}
	if g.link != nil {
		if err := g.link.Update(next.Guard); err != nil {
			return fmt.Errorf("replace program: %w", err)
		}
	}
	before := g.objects
	g.objects, g.capacity = next, capacity
	return before.Close()
}

func copyEntries[K, V any](to, from *ebpf.Map, room int) error {
	keys, values := make([]K, 0, room), make([]V, 0, room)
	var (
		key   K
		value V
	)
	entries := from.Iterate()
	for entries.Next(&key, &value) {
		keys, values = append(keys, key), append(values, value)
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("copy entries: %w", err)
	}
	return put(to, keys, values)
}

// addressKey is the address in 16 bytes, IPv4 as ::ffff:a.b.c.d. Zones say nothing about the destination of a packet.
func addressKey(a netip.Addr) (k guardAddress) {
	b := a.As16()
	for i := range k.Words {
		k.Words[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return k
}

func frontendKey(f lb.FrontendKey) guardFrontend {
	var port [2]byte
	binary.BigEndian.PutUint16(port[:], f.Address.Port())
	return guardFrontend{
		Address: addressKey(f.Address.Addr()), Port: binary.NativeEndian.Uint16(port[:]), Protocol: uint8(f.Proto),
	}
}
