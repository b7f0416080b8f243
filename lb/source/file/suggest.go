package file

import "strings"

// nearest is the known word that a misspelt one most likely stands for, or "".
func nearest(word string, known []string) string {
	best, limit := "", max(1, len(word)/3)+1
	if len(word) > 64 {
		return ""
	}
	for _, k := range known {
		if strings.EqualFold(k, strings.NewReplacer("_", "", "-", "").Replace(word)) {
			return k
		}
		if d := distance(word, k); d < limit {
			best, limit = k, d
		}
	}
	return best
}

// distance counts the letters to insert, delete, replace or swap with their
// neighbour to get from a to b (optimal string alignment).
func distance(a, b string) int {
	before, last := []int(nil), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
