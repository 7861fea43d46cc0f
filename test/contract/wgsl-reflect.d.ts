// The package has no types for its module build, which is the one that loads in Node.
declare module 'wgsl_reflect/wgsl_reflect.module.js' {
  export class WgslReflect {
    constructor(code: string);
  }
}
