// Elements that lie side by side, moved PER at once or one by one: DECLARE what an item has of its vectors v, READ them, have
// their SHADOWS as operands, whose element j is HERE, and WRITE them.
//
// VECTOR           elements of a vector, with what define_wide defines; 0: there are none
// PLACE(n)         of an element in operand n
// VECTOR_PLACE(n)  of vector v

#if VECTOR && defined(TB_HAS_VECTORS)
#define PER VECTOR
#define HERE(n) j
#define DECLARE WIDE_DECLARE
#define READ WIDE_READ(v, VECTOR_PLACE)
#define SHADOWS WIDE_SHADOWS(v)
#define WRITE WIDE_WRITE(v, VECTOR_PLACE)
#else
#define PER 1
#define HERE PLACE
#define DECLARE
#define READ
#define SHADOWS
#define WRITE
#endif
