"""A kernel that was compiled elsewhere: PTX here, a cubin or an hsaco in the same way.

``silo build examples/binary.py -o saxpy.silo`` packs it, with no compiler.
"""

import silo

PTX = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .u32 n, .param .f32 alpha)
.maxntid 256
{
    .reg .pred %p; .reg .b32 %r<5>; .reg .f32 %f<4>; .reg .b64 %rd<5>;
    ld.param.u32 %r0, [n];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    setp.ge.s32 %p, %r4, %r0;
    @%p ret;
    ld.param.u64 %rd0, [x]; ld.param.u64 %rd1, [y];
    cvta.to.global.u64 %rd2, %rd0; cvta.to.global.u64 %rd3, %rd1;
    mul.wide.s32 %rd4, %r4, 4;
    add.s64 %rd2, %rd2, %rd4; add.s64 %rd3, %rd3, %rd4;
    ld.global.f32 %f0, [%rd2]; ld.global.f32 %f1, [%rd3]; ld.param.f32 %f2, [alpha];
    fma.rn.f32 %f3, %f2, %f0, %f1;
    st.global.f32 [%rd3], %f3;
    ret;
}
"""

saxpy = silo.binary(
    PTX,
    signature="x: in *fp32, y: inout *fp32, n: i32, alpha: fp32",
    threads=256,
    grid=lambda a: (silo.cdiv(a.n, 256),),
)


@saxpy.cases(n=[1000, 1 << 20])
def _(n, make):
    x, y = make.normal(n), make.normal(n)
    return silo.Case(args=(x, y, n, 2.0), expected={"y": lambda: 2 * x.host + y.host})
