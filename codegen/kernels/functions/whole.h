// Goes before "integral" where one kernel has values of many dtypes, until "graph": whole numbers are i64, whatever T is.
#define T i64
