package mysqld

import "testing"

func TestOfResources(t *testing.T) {
	for _, c := range []struct {
		number int
		text   string
		want   bool
	}{
		{1032, "Can't find record in 'child'", false},
		{1062, "Duplicate entry '1' for key 't.PRIMARY'", false},
		{1146, "Table 'a.t' doesn't exist", false},
		{1452, "Cannot add or update a child row", false},
		{3819, "Check constraint 't_chk_1' is violated", false},
		{1524, "Plugin 'x' is not loaded", false},
		{1205, "Lock wait timeout exceeded", true},
		{1213, "Deadlock found", true},
		{1021, "Disk full (/tmp/x)", true},
		{1114, "The table 't' is full", true},
		{1041, "Out of memory", true},
		{1030, "Got error 28 - 'No space left on device' from storage engine", true},
		{1030, "Got error 168 - 'Unknown (generic) error from engine' from storage engine", false},
		{3675, "Create table/tablespace 'b1' failed, as disk is full", true},
		{1878, "Temporary file write failure.", true},
		{3019, "Undo Log error: No more space left over in system tablespace for allocating UNDO log pages.", true},
		{1005, "Can't create table 'b1' (errno: 28 - No space left on device)", true},
		{1006, "Can't create database 'd' (errno: 28 - No space left on device)", true},
		{1005, "Can't create table 'b1' (errno: 150 - Foreign key constraint is incorrectly formed)", false},
		{1180, "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT", true},
	} {
		if got := (ApplyError{Number: c.number, Text: c.text}).OfResources(); got != c.want {
			t.Errorf("%d %s: %t, want %t", c.number, c.text, got, c.want)
		}
	}
}
