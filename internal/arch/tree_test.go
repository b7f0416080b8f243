package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// parseTree reads every Go file of the module, whatever its build constraints,
// down to its imports.
func parseTree(t *testing.T) (files []file, docs map[string]bool) {
	t.Helper()
	docs = make(map[string]bool)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(d.Name(), ".go") {
			return nil
		}
		src, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		f := file{pkg: filepath.ToSlash(rel), name: d.Name(), imports: importsOf(src)}
		files = append(files, f)
		docs[f.pkg] = docs[f.pkg] || f.name == "doc.go" && documents(src)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, docs
}

func importsOf(src *ast.File) []string {
	var imports []string
	for _, spec := range src.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			imports = append(imports, p)
		}
	}
	return imports
}

// documents says whether the file opens with its package's comment in the form
// that go doc shows.
func documents(src *ast.File) bool {
	text := src.Doc.Text()
	return strings.HasPrefix(text, "Package "+src.Name.Name+" ") || src.Name.Name == "main" && text != ""
}

func TestImportTable(t *testing.T) {
	files, _ := parseTree(t)
	if len(files) == 0 {
		t.Fatal("no Go files found")
	}
	for _, fault := range check(table, files) {
		t.Error(fault)
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	_, docs := parseTree(t)
	for pkg, ok := range docs {
		if !ok {
			t.Errorf("%s has no doc.go with a package comment", pkg)
		}
	}
}

func TestTopLevelDirectoriesAreFixed(t *testing.T) {
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !slices.Contains(topLevel, e.Name()) {
			t.Errorf("directory %s: a package of ours belongs under one of %v", e.Name(), topLevel)
		}
	}
}
