package api

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// allAnswers is all that a Client decodes.
var allAnswers = []any{AppliedView{}, BackupResult{}, CAView{}, ClusterView{}, ConfigHistoryView{},
	ConfigRollbackResult{}, ConfigView{}, DelayResult{}, FailoverResult{},
	ForceReport{}, JoinResult{}, JoinTokenResult{}, LeaveResult{}, LoadView{}, LoginCode{}, MemberResult{}, MemberView{},
	Outcome{}, PauseResult{}, PeriodView{}, QuietResult{}, ReadIndexView{}, ReplaceResult{}, RevokeResult{}, RevokedView{},
	SwitchoverResult{}, TokenResult{}, TokenView{}, VoidReport{}, WhyNotView{}, servesView{}}

// TestRequiredFields: clients refuse an answer without its fields, so a field that is added later, which older nodes do
// not send, may be omitted. What they require is in testdata/required.txt: lines may go, and come with a new answer
// only.
func TestRequiredFields(t *testing.T) {
	var got []string
	for _, a := range allAnswers {
		got = append(got, fmt.Sprintf("%s: %s\n", reflect.TypeOf(a).Name(), strings.Join(required(reflect.TypeOf(a)), " ")))
	}
	want, err := os.ReadFile("testdata/required.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range got {
		if !slices.Contains(strings.SplitAfter(string(want), "\n"), line) {
			t.Errorf(
				"%snot as in testdata/required.txt; older nodes do not send a field that is new: give it omitempty or omitzero",
				line)
		}
	}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for verb, v := range declared {
		answer := v.Answer
		if answer.Kind() == reflect.Slice {
			answer = answer.Elem()
		}
		if !slices.ContainsFunc(allAnswers, func(a any) bool { return reflect.TypeOf(a) == answer }) {
			t.Errorf("the answer to %s is not looked at here", verb)
		}
	}
	asked := regexp.MustCompile(`\bask\[(\w+)\]`)
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range asked.FindAllSubmatch(text, -1) {
			if name := string(m[1]); name != "V" && name != "Res" &&
				!slices.ContainsFunc(allAnswers, func(a any) bool { return reflect.TypeOf(a).Name() == name }) {
				t.Errorf("%s: the answer %s is not looked at here", f.Name(), name)
			}
		}
	}
}
