package flow

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// declared is the values of the constants of a type in reasons.go.
func declared(t *testing.T, typ string) (values []string) {
	f, err := parser.ParseFile(token.NewFileSet(), "reasons.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Type == nil || len(spec.Values) != 1 {
			return true
		}
		if id, ok := spec.Type.(*ast.Ident); ok && id.Name == typ {
			s, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, s)
		}
		return true
	})
	return values
}

func words[T ~string](list []T) (out []string) {
	for _, w := range list {
		out = append(out, string(w))
	}
	return out
}

// The lists are closed: every word that is declared is in its list, once, in
// that order, and fit to be a metric label.
func TestListsAreComplete(t *testing.T) {
	word := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	for typ, list := range map[string][]string{
		"PathName":      words(Paths),
		"State":         words(States),
		"Reason":        words(Reasons),
		"NotOffloaded":  words(NotOffloadedReasons),
		"HandoffResult": words(HandoffResults),

		"ClientAddress":  words(ClientAddresses),
		"NotSteered":     words(NotSteeredReasons),
		"NotTransparent": words(NotTransparentReasons),

		"Drop":        words(Drops),
		"DialFailure": words(DialFailures),
	} {
		want := declared(t, typ)
		if len(want) == 0 || !slices.Equal(list, want) {
			t.Errorf("%s lists %q, declared are %q", typ, list, want)
		}
		for i, w := range list {
			if !word.MatchString(w) || slices.Contains(list[:i], w) {
				t.Errorf("%s: %q is twice in the list, or no word", typ, w)
			}
		}
	}
	if len(Drops) > len((&dropCounts{}).n) {
		t.Errorf("%d drops, room for %d", len(Drops), len((&dropCounts{}).n))
	}
}

func TestLocal(t *testing.T) {
	for d, want := range map[DialFailure]bool{
		DialRefused: false, DialTimeout: false, DialUnreachable: false, DialReset: false,
		DialNoPorts: true, DialNoResources: true, DialLocal: true,
	} {
		if d.Local() != want {
			t.Errorf("%s: local = %v", d, !want)
		}
	}
}
